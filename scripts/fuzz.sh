#!/usr/bin/env bash
# Each fuzz target of each package, one after the other. What fuzzing finds stays
# in the package's testdata/fuzz and is a test from then on.
. "$(dirname "$0")/lib.sh"
: "${FUZZTIME:=30s}"

ran=0
for m in $(code_modules); do
	cd "$m"
	for p in $(go list ./...); do
		for f in $(go test -list '^Fuzz' "$p" | grep '^Fuzz' || true); do
			say "$f in $p for $FUZZTIME"
			go test -run '^$' -fuzz "^$f\$" -fuzzminimizetime 1s -fuzztime "$FUZZTIME" "$p"
			ran=$((ran + 1))
		done
	done
	cd "$OLDPWD"
done
[[ $ran -gt 0 ]] || die "no fuzz target found"
