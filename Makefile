# `make` alone lists the targets. Only Go, git and make must be installed before;
# `make deps` finds or installs the rest.

.DEFAULT_GOAL := help
SHELL := /bin/sh

# The default folder of Go's installer, and Debian's of servers, in case they are not in PATH.
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin
# Stamping the revision fails in a clone owned by another user, as in some containers.
# Nothing uses the stamp.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

# The output of --version: the nearest tag, or the commit; "devel" without git.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS = -X triprize/internal/domain/buildinfo.version=$(VERSION)

TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
# All modules: the program, the draw, the client, the tools and the benchmarks.
MODULES := $(patsubst %/,%,$(dir $(wildcard go.mod */go.mod)))

# Only the race detector needs a C compiler.
export CGO_ENABLED := 0

# Go's test cache does not see the servers and binaries that a test uses. The test kit reads
# this variable, so only packages that use neither get cached results.
export TRIPRIZE_TEST_RUN := $(shell date +%s)-$(shell echo $$PPID)

# The failpoint tag lets tests stop the code at named points. The slowest packages start first.
# Tests mostly wait, so more of them run than there are cores.
TEST := $(TOOL) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped -- \
	-tags failpoint -vet=off -p 3 -parallel 4 -timeout 30m ./e2e ./internal/entry/httpapi ./...

# Runs a command with the programs that tests use, and starts servers if none are configured.
# Without atexit_sleep_ms, binaries with the race detector wait a second at exit.
WITH = TRIPRIZE_TEST_BINARIES=$(CURDIR)/bin/failpoint GORACE="atexit_sleep_ms=10 $$GORACE" \
	$(if $(and $(TRIPRIZE_TEST_POSTGRES_URL),$(TRIPRIZE_TEST_REDIS_URL)),,./bin/failpoint/triprize-dev with-servers)

# Copies the libraries of the console from where npm installs them (cp), or compares them (cmp).
libraries = $(1) tools/npm/node_modules/htmx.org/dist/htmx.min.js web/console/static/htmx.js && \
	$(1) tools/npm/node_modules/uplot/dist/uPlot.iife.min.js web/console/static/uPlot.js && \
	$(1) tools/npm/node_modules/uplot/dist/uPlot.min.css web/console/static/uPlot.css

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: deps
deps: ## Find PostgreSQL and Redis, or install them (Debian, Ubuntu)
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
build: go ## Build api, worker, scheduler, triprize and triprize-dev into bin/
	go build -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...

.PHONY: demo
demo: deps build ## Sell out a campaign to many buyers and draw it (ARGS="--buyers 1000")
	./bin/triprize-dev demo $(ARGS)

.PHONY: dev
dev: deps build ## Run the whole system on this machine until Ctrl-C (ARGS="--workers 4")
	./bin/triprize-dev dev $(ARGS)

.PHONY: programs
programs: go
	@go build -tags failpoint -ldflags "-s -w" -o bin/failpoint/ ./cmd/...

.PHONY: test
test: deps programs ## Run the tests, with their own Postgres and Redis
	@$(WITH) $(TEST)
	@cd draw && go test -vet=off ./...
	@cd client && go test -vet=off ./...
	@cd tools && go test -vet=off -count=1 ./... # the test cache does not see files of other modules

.PHONY: race
race: deps programs ## Run the tests of concurrent code with the race detector
	@tools/deps.sh compiler
	@CGO_ENABLED=1 $(WITH) tools/race.sh

.PHONY: web
web: deps npm browser programs ## Run the tests that need Node.js, npm, a browser or Python
	@$(call libraries,cmp) # otherwise: make generate
	@tools/deps.sh python
	@$(WITH) tools/tagged.sh web -p 4

.PHONY: pictures
pictures: npm browser programs ## Take the pictures in docs/pictures with a browser
	@rm -f docs/pictures/*.png
	@TRIPRIZE_TEST_PICTURES=$(CURDIR)/docs/pictures $(WITH) go test -tags "failpoint web" -vet=off -count=1 -run TestEveryPublicPageIsAccessible ./web
	@cd docs/pictures && rm -f problems.png document.png nothing.png german.png

.PHONY: alerts
alerts: ## Check and test the Prometheus rules and the Alertmanager routes
	@tools/deps.sh prometheus
	@cd deploy/prometheus && promtool check config prometheus.yml && promtool test rules rules_test.yml objectives_test.yml
	@cd deploy/alertmanager && amtool check-config alertmanager.yml && for severity in page ticket; do \
		amtool config routes test --config.file=alertmanager.yml --verify.receivers=$$severity severity=$$severity; done

.PHONY: chart
chart: go ## Render the Helm chart and hold it against Kubernetes' types and the settings
	@go -C tools/chart test -vet=off -count=1 ./... # the test cache does not see files of other modules

.PHONY: soak
soak: deps programs ## Run the long tests: crashes, attacks, load, fuzzing (some minutes)
	@tools/deps.sh prometheus openssl nginx
	@$(WITH) tools/soak.sh

.PHONY: compose
compose: deps go ## Try docker-compose.yml: sell, scale, restart, upgrade from COMMIT (root, or DOCKER_HOST)
	@tools/deps.sh docker
	@tools/compose.sh

.PHONY: soak-long
soak-long: deps programs ## Run the long tests with every failpoint and more cases (an hour)
	@tools/deps.sh prometheus openssl nginx
	@SOAK_ROUNDS=3 SOAK_FLAGS= SOAK_CASES=500 SOAK_FUZZTIME=1000000x SOAK_FUZZ="-fuzz ." $(WITH) tools/soak.sh
	@$(MAKE) compose ha

.PHONY: ha
ha: deps programs ## Lose hosts and networks in mid-sale (root; Sentinel, Cluster, Patroni; ARGS="-test.run /cluster")
	@tools/deps.sh hosts
	@tools/ha.sh $(ARGS)

.PHONY: lint
lint: go ## Lint the code, including the import rules (.golangci.yml), and hold its size
	@tools/size.sh >/dev/null
	@for module in $(MODULES); do (cd $$module && $(TOOL) golangci-lint run ./...) || exit 1; done

.PHONY: size
size: ## Print the size of the project's parts, and what docs/size.txt allows
	@tools/size.sh

.PHONY: clients
clients: ## Pack the TypeScript client into bin/ for npm install
	@mkdir -p bin
	@cd clients/typescript && npm pack --silent --pack-destination ../../bin

.PHONY: contract
contract: go ## Check generated code and unlisted breaking changes of the contract (SINCE=commit: all changes)
	@tools/tagged.sh contract
	@tools/contract-changes.sh $(SINCE)

.PHONY: generate
generate: go npm ## Generate code from the contract (api/openapi.yaml) and the rules of Prometheus, and copy the console's libraries
	$(call libraries,cp)
	@for module in . client; do (cd $$module && go generate ./...) || exit 1; done
	clients/typescript/generate.sh
	go test -count=1 -run 'TestTheMapOfThePackages|TestTheRulesOfPrometheus' ./internal ./internal/entry/checks -update

.PHONY: pin
pin: ## Pin third-party images by their current digests (needs docker and the network)
	@tools/pin.sh

.PHONY: sbom
sbom: build ## Write a bill of materials of each program to bin/*.cdx.json (CycloneDX; needs the network)
	@for main in $(notdir $(wildcard cmd/*)); do \
		go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -version "$(VERSION)" -output bin/$$main.cdx.json bin/$$main || exit 1; done

.PHONY: vuln
vuln: go ## Check dependencies for known vulnerabilities (needs the network)
	@tools/vuln.sh

.PHONY: client-path
client-path: go ## Change the module path of the Go client (MODULE=example.com/triprize/client)
	@tools/client-path.sh "$(MODULE)"

.PHONY: draw-path
draw-path: go ## Change the module path of the draw (MODULE=example.com/triprize/draw)
	@tools/client-path.sh "$(MODULE)" draw

.PHONY: fmt
fmt: go ## Format the code
	@for module in $(MODULES); do (cd $$module && $(TOOL) golangci-lint fmt ./...) || exit 1; done

.PHONY: bench
bench: deps go ## Run the benchmarks (ARGS are passed on; see bench/)
	cd bench && go run . $(ARGS)

.PHONY: clean
clean: ## Remove build output; the data of `make dev` stays in .triprize/
	rm -rf bin
