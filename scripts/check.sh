#!/usr/bin/env bash
# What can be told without running anything. Goes on after a failure, so that one
# run shows all of them.
. "$(dirname "$0")/lib.sh"

failed=()

say "gofmt"
unformatted=$(git ls-files --cached --others --exclude-standard -- '*.go' | while read -r f; do
	[[ ! -f $f ]] || gofmt -l "$f"
done)
[[ -z $unformatted ]] || failed+=("gofmt: $unformatted")

staticcheck=$(cd tools && go tool -n staticcheck)
for m in $(code_modules); do
	say "go mod tidy -diff in $m"
	(cd "$m" && go mod tidy -diff) || failed+=("go mod tidy in $m")
	for os in linux darwin windows; do
		say "go vet and staticcheck for $os in $m"
		(
			cd "$m"
			export GOOS=$os GOARCH=amd64 CGO_ENABLED=0
			go vet ./... && "$staticcheck" ./...
		) || failed+=("go vet or staticcheck for $os in $m")
	done
done

for f in "${failed[@]}"; do
	printf 'failed: %s\n' "$f" >&2
done
[[ ${#failed[@]} -eq 0 ]]
