#!/usr/bin/env bash
# sidecar.sh FILE NAME writes dist/sidecars/NAME.sha256 for FILE, in the form of
# sha256sum. A hook of .goreleaser.yaml.
. "$(dirname "$0")/lib.sh"

mkdir -p dist/sidecars
sum=$(sha256sum "$1")
printf '%s  %s\n' "${sum%% *}" "$2" >"dist/sidecars/$2.sha256"
