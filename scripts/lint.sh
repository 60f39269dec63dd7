#!/usr/bin/env bash
. "$(dirname "$0")/lib.sh"

linter=$(cd tools/golangci-lint && go tool -n golangci-lint)
config=$PWD/.golangci.yml
failed=()
for m in $(code_modules); do
	say "golangci-lint in $m"
	(cd "$m" && "$linter" run --config "$config" ./...) || failed+=("$m")
done
[[ ${#failed[@]} -eq 0 ]] || die "golangci-lint failed in: ${failed[*]}"
