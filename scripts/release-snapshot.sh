#!/usr/bin/env bash
# A release into dist/ as goreleaser makes it, nothing published; then the example
# is updated from those files as an operator would.
. "$(dirname "$0")/lib.sh"

scripts/prerequisites.sh
# Signed as a release is, with a key that is thrown away.
keys=$(mktemp -d)
trap 'rm -rf "$keys"' EXIT
minisign -G -W -p "$keys/minisign.pub" -s "$keys/minisign.key" >/dev/null
export MINISIGN_KEY=$keys/minisign.key

say "goreleaser (its first build takes minutes)"
goreleaser=$(cd tools/goreleaser && go tool -n goreleaser)
"$goreleaser" check
"$goreleaser" release --snapshot --clean
say "updating from dist/"
cd tools
go run ./releasecheck -repository .. -dist ../dist -key "$keys/minisign.pub"
