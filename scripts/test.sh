#!/usr/bin/env bash
# Every test of every module. The modules are downloaded first; then the tests run
# in a network namespace that has only a loopback, and each package in a mount
# namespace of its own: what one mounts, no container that another boots can hold.
# Both need root; without it they run as they are.
. "$(dirname "$0")/lib.sh"
: "${TESTFLAGS:=-race -timeout=30m}"

apart=()
run_all() {
	local failed=() m
	for m in "$@"; do
		say "go test $TESTFLAGS ./... in $m"
		# shellcheck disable=SC2086 # the flags are a list
		(cd "$m" && go test "${apart[@]}" $TESTFLAGS ./...) || failed+=("$m")
	done
	[[ ${#failed[@]} -eq 0 ]] || die "tests failed in: ${failed[*]}"
}

if [[ ${1-} == --inside ]]; then
	shift
	ip link set lo up
	export GOPROXY=off
	apart=(-exec "unshare --mount --propagation private")
	run_all "$@"
	exit
fi

scripts/prerequisites.sh
read -r -d "" -a found < <(code_modules) || true
for m in "${found[@]}"; do
	(cd "$m" && go mod download)
done
if [[ $(uname -s) == Linux && $(id -u) -eq 0 ]] && unshare --net --mount true 2>/dev/null; then
	exec unshare --net --mount "$0" --inside "${found[@]}"
fi
say "no namespace of its own for the tests here; they are not meant to reach the internet, but nothing keeps them from it"
run_all "${found[@]}"
