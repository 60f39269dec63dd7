#!/usr/bin/env bash
# What can be told without running anything.
. "$(dirname "$0")/lib.sh"

say "gofmt"
unformatted=$(git ls-files --cached --others --exclude-standard -- '*.go' | while read -r f; do
	[[ ! -f $f ]] || gofmt -l "$f"
done)
[[ -z $unformatted ]] || die "not formatted: $unformatted"

read -r -d "" -a found < <(code_modules) || true
for m in "${found[@]}"; do
	say "go mod tidy -diff in $m"
	(cd "$m" && go mod tidy -diff) || die "run go mod tidy in $m"
done

staticcheck=$(cd tools && go tool -n staticcheck)
for m in "${found[@]}"; do
	for os in linux darwin windows; do
		say "go vet and staticcheck for $os in $m"
		(
			cd "$m"
			export GOOS=$os GOARCH=amd64 CGO_ENABLED=0
			go vet ./...
			"$staticcheck" ./...
		)
	done
done
