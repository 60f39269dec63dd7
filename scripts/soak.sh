#!/usr/bin/env bash
# First the long forms of the fault tests, whatever they take (about an hour on
# two cores): every system call, every power cut, every full disk, the fleet. Then all
# tests again and again, each time in another order, until SOAK is over or one fails.
# That finds what one run has luck with: races, leftovers, clocks.
. "$(dirname "$0")/lib.sh"
: "${SOAK:=30m}"

case $SOAK in
*h) seconds=$((${SOAK%h} * 3600)) ;;
*m) seconds=$((${SOAK%m} * 60)) ;;
*s) seconds=${SOAK%s} ;;
*) die "SOAK=$SOAK: want a number with h, m or s" ;;
esac
scripts/prerequisites.sh
say "the long forms of the fault tests"
# In a mount namespace of its own, as scripts/test.sh: nothing that they mount leaks.
apart=()
if [[ $(id -u) -eq 0 && $(uname -s) == Linux ]]; then apart=(-exec "unshare --mount --propagation private"); fi
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# long runs the long form of tests and says what they said.
long() { # LOG TEST...
	local log=$logs/$1 t rc=0
	shift
	for t in "$@"; do
		say "$t"
		SELFUPDATE_SOAK=1 go test "${apart[@]}" -count=1 -timeout=4h -v -run "^($t)\$" ./selfupdate >"$log" 2>&1 || rc=1
		grep -v -e '^=== ' -e '^        *--- PASS' "$log" || true
	done
	return $rc
}

# Two at a time: a process that is stopped at each system call leaves a core idle.
long calls TestTrialEverySystemCall TestTrialLostWrites TestFleet &
calls=$!
rc=0
long rest 'TestProperties|TestPropertiesModel|TestPropertiesAfter' TestTrialPowerCutAnywhere \
	'TestTrialKilledAnywhere|TestTrialOperationFails|TestTrialDiskFills' || rc=1
wait "$calls" || rc=1
[[ $rc -eq 0 ]] || die "a long form failed: see above"
for ((round = 1; SECONDS < seconds; round++)); do
	say "round $round after ${SECONDS} s of $seconds"
	TESTFLAGS="-race -timeout=30m -count=1 -shuffle=on" scripts/test.sh
done
