# `make` alone lists the targets. Only Go, git and make must be installed before;
# `make deps` finds or installs the rest.

.DEFAULT_GOAL := help
SHELL := /bin/sh

# Where Go's own installer puts it, if it is not in PATH.
export PATH := $(PATH):/usr/local/go/bin
# Stamping the revision fails in a clone that belongs to another user, as in some
# containers, and nothing uses the stamp.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

# What --version says: the nearest tag, or the commit. Without git it is "devel".
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS = -X triprize/internal/domain/release.version=$(VERSION)

TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
# All modules: the program, its client, the tools and the benchmarks.
MODULES := $(patsubst %/,%,$(dir $(wildcard go.mod */go.mod)))

# The failpoint tag lets tests stop the code at named moments. -count=1: Go's cache
# of results does not see changes in the servers and binaries that a test uses. A
# program with the race detector waits for reports at its end, a second if not told.
TEST := $(TOOL) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped -- \
	-tags failpoint -race -count=1 -timeout 30m ./...

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: deps
deps: ## Find PostgreSQL, Redis, Python and a C compiler, or install them (Debian, Ubuntu)
	@tools/deps.sh

.PHONY: npm
npm:
	@tools/npm.sh

.PHONY: browser
browser:
	@tools/browser.sh

.PHONY: go
go:
	@tools/check-go.sh

.PHONY: build
build: go ## Build api, worker, scheduler and triprize into bin/
	go build -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...

.PHONY: demo
demo: deps build ## Sell out a campaign to a crowd and draw it (ARGS="--buyers 1000")
	./bin/triprize demo $(ARGS)

.PHONY: dev
dev: deps build ## Run the whole system on this machine until Ctrl-C (ARGS="--workers 4")
	./bin/triprize dev $(ARGS)

.PHONY: test
test: deps npm browser go ## Run every test, on a Postgres and a Redis of their own
	go build -tags failpoint -o bin/failpoint/ ./cmd/...
	@export TRIPRIZE_TEST_BINARIES=$(CURDIR)/bin/failpoint GORACE="atexit_sleep_ms=10 $$GORACE"; \
	if [ -n "$$TRIPRIZE_TEST_POSTGRES_URL" ] && [ -n "$$TRIPRIZE_TEST_REDIS_URL" ]; then \
		$(TEST); \
	else \
		./bin/failpoint/triprize with-servers $(TEST); \
	fi
	@for module in $(filter-out .,$(MODULES)); do (cd $$module && go test -race -tags failpoint -count=1 ./...) || exit 1; done

.PHONY: soak
soak: deps go ## Run what takes long by nature, about 9 minutes (see tools/soak.sh)
	go build -tags failpoint -o bin/failpoint/ ./cmd/...
	@TRIPRIZE_TEST_BINARIES=$(CURDIR)/bin/failpoint ./bin/failpoint/triprize with-servers tools/soak.sh

.PHONY: lint
lint: go ## Check the code, and that imports follow the rules (.golangci.yml)
	@for module in $(MODULES); do (cd $$module && $(TOOL) golangci-lint run ./...) || exit 1; done

.PHONY: contract
contract: go ## Refuse what breaks the contract of the last release (api/released.yaml)
	go test -count=1 -run 'TestNothingBreaksTheReleasedContract|TestABreakingChangeIsSeen' ./api

.PHONY: generate
generate: go npm ## Generate code from the contract (api/openapi.yaml), in Go and TypeScript
	@for module in . client; do (cd $$module && go generate ./...) || exit 1; done
	clients/typescript/generate.sh

.PHONY: client-path
client-path: go ## Give the Go client another module path (MODULE=example.com/triprize/client)
	@tools/client-path.sh "$(MODULE)"

.PHONY: fmt
fmt: go ## Format the code
	@for module in $(MODULES); do (cd $$module && $(TOOL) golangci-lint fmt ./...) || exit 1; done

.PHONY: bench
bench: deps go ## Measure (ARGS are passed on; see bench/)
	cd bench && go run . $(ARGS)

.PHONY: clean
clean: ## Remove what was built; the data of `make dev` stays in .triprize/
	rm -rf bin
