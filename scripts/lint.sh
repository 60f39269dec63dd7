#!/usr/bin/env bash
. "$(dirname "$0")/lib.sh"

linter=$(cd tools/golangci-lint && go tool -n golangci-lint)
config=$PWD/.golangci.yml
for m in $(code_modules); do
	say "golangci-lint in $m"
	(cd "$m" && "$linter" run --config "$config" ./...)
done
