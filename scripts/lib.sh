# Sourced by the scripts beside it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PATH=$PATH:/usr/sbin:/sbin # setcap, mkfs

say() { printf '== %s\n' "$*"; }

die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# modules prints the directory of every module of the repository, so that a new
# one is taken along by being there.
modules() {
	find . -name go.mod -not -path '*/testdata/*' -not -path '*/.*/*' -not -path './dist/*' | sed 's|/go.mod$||' | sort
}

# code_modules leaves out those that have no Go file and only pin a tool. Their
# dependency graphs are large (goreleaser's has 300 modules) and are loaded by the
# targets that use them.
code_modules() {
	local m
	for m in $(modules); do
		if git ls-files --cached --others --exclude-standard -- "$m/*.go" | grep -q .; then
			echo "$m"
		fi
	done
}
