#!/usr/bin/env bash
# First the long forms of the fault tests, whatever they take (half an hour on two
# cores): every system call, every power cut, every full disk. Then all tests again and
# again, each time in another order, until SOAK is over or one fails. That finds what
# one run has luck with: races, leftovers, clocks.
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
# What takes longest comes first. In a mount namespace: nothing that they mount leaks.
isolate=()
if [[ $(id -u) -eq 0 && $(uname -s) == Linux ]]; then isolate=(unshare --mount --propagation private); fi
for long in TestTrialEverySystemCall TestTrialPowerCutAnywhere \
	'TestTrialLostWrites|TestTrialKilledAnywhere|TestTrialOperationFails|TestTrialDiskFills'; do
	say "$long"
	SELFUPDATE_SOAK=1 "${isolate[@]}" go test -count=1 -timeout=4h -v -run "^($long)\$" ./selfupdate | grep -v '^=== ' ||
		die "a long form failed: see above"
done
for ((round = 1; SECONDS < seconds; round++)); do
	say "round $round after ${SECONDS} s of $seconds"
	TESTFLAGS="-race -timeout=30m -count=1 -shuffle=on" scripts/test.sh
done
