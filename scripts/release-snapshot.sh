#!/usr/bin/env bash
# A release into dist/ as goreleaser makes it, nothing published; then the example
# is updated from those files as an operator would.
. "$(dirname "$0")/lib.sh"

say "goreleaser (its first build takes minutes)"
goreleaser=$(cd tools/goreleaser && go tool -n goreleaser)
"$goreleaser" check
"$goreleaser" release --snapshot --clean
say "updating from dist/"
cd tools
go run ./releasecheck -repository .. -dist ../dist
