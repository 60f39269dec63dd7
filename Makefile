# Nothing needs to be set. Each variable can be given on the command line.
TESTFLAGS  ?= -race -timeout=30m
FUZZTIME   ?= 30s
SOAK       ?= 30m
BENCHFLAGS ?=
MUTATEFLAGS ?=

export TESTFLAGS FUZZTIME SOAK

.DEFAULT_GOAL := help
.PHONY: help test check lint demo bench fuzz soak mutate dependencies release-snapshot clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## every test of every module, with the race detector and without the internet
	@scripts/test.sh

check: ## gofmt, go mod tidy, go vet and staticcheck for linux, darwin and windows
	@scripts/check.sh

lint: ## golangci-lint (its first build takes minutes)
	@scripts/lint.sh

demo: ## real controllers update themselves, and leave or refuse what does not work (about a minute)
	@cd examples/firewall-controller && CGO_ENABLED=0 go run ./demo

bench: ## our Apply beside others, and what a start costs; BENCHFLAGS="-rounds 3", -powercut: what a power cut leaves
	@cd bench && go run . $(BENCHFLAGS)

fuzz: ## every fuzz target for FUZZTIME (30s)
	@scripts/fuzz.sh

soak: ## the long forms of the fault tests, then all tests again and again, shuffled, for SOAK (30m)
	@scripts/soak.sh

mutate: ## breaks the protocol of a trial in each of 44 ways: a test has to fail (MUTATEFLAGS="-only confirm")
	@scripts/mutate.sh $(MUTATEFLAGS)

dependencies: ## measure what each package adds to an importer (the table in docs/dependencies.md)
	@cd tools && go run ./depsize

release-snapshot: ## goreleaser into dist/ without publishing, then update the example from it
	@scripts/release-snapshot.sh

clean: ## remove what the targets above left in the work tree
	rm -rf dist bin .cache
