#!/usr/bin/env bash
# Each fuzz target of each package, one after the other. An input that fails stays in
# the package's testdata/fuzz, one that reached something new in corpus; both
# are tests from then on.
. "$(dirname "$0")/lib.sh"
: "${FUZZTIME:=30s}"

ran=0
cache=$(go env GOCACHE)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/keep" ./cmd/internal/fuzzkeep
for m in $(code_modules); do
	cd "$m"
	for p in $(go list ./...); do
		for f in $(go test -list '^Fuzz' "$p" | grep '^Fuzz' || true); do
			say "$f in $p for $FUZZTIME"
			go test -run '^$' -fuzz "^$f\$" -fuzzminimizetime 1s -fuzztime "$FUZZTIME" "$p"
			"$work/keep" "$(go list -f '{{.Dir}}' "$p")" "$cache/fuzz/$p" "$f"
			ran=$((ran + 1))
		done
	done
	cd "$OLDPWD"
done
[[ $ran -gt 0 ]] || die "no fuzz target found"
