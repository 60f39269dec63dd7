#!/usr/bin/env bash
# Breaks the protocol of a trial in one way after the other and shows that a test
# fails for each. Needs what the tests need, and runs where they run.
. "$(dirname "$0")/lib.sh"

if [[ ${1-} == --inside ]]; then
	shift
	ip link set lo up
	export GOPROXY=off
	cd tools
	exec go run ./mutate "$@"
fi

scripts/prerequisites.sh
go mod download
(cd tools && go mod download)
if [[ $(uname -s) == Linux && $(id -u) -eq 0 ]] && unshare --net --mount true 2>/dev/null; then
	exec unshare --net --mount "$0" --inside "$@"
fi
cd tools
exec go run ./mutate "$@"
