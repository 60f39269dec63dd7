#!/usr/bin/env bash
# All tests again and again, each time in another order, until SOAK is over or one
# fails. Finds what one run has luck with: races, leftovers, clocks.
. "$(dirname "$0")/lib.sh"
: "${SOAK:=30m}"

case $SOAK in
*h) seconds=$((${SOAK%h} * 3600)) ;;
*m) seconds=$((${SOAK%m} * 60)) ;;
*s) seconds=${SOAK%s} ;;
*) die "SOAK=$SOAK: want a number with h, m or s" ;;
esac
for ((round = 1; SECONDS < seconds; round++)); do
	say "round $round after ${SECONDS} s of $seconds"
	TESTFLAGS="-race -timeout=30m -count=1 -shuffle=on" scripts/test.sh
done
