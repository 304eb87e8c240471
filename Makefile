# Every target works on a machine where nothing has been set up but Go and make.

LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# For example: make test TEST=-run=TestClock PKG=./tests/...
PKG ?= ./...
TEST ?=
# For example: make bench ARGS='-only replay'
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: postgres
postgres: ## install PostgreSQL's server binaries, unless there are some; starts nothing
	@sh cmd/daybook/localpg/install.sh

# The tests start a server by themselves, or use the one that DAYBOOK_TEST_DATABASE_URL names.
.PHONY: test
test: postgres ## run all tests, with the race detector
	go test -race -shuffle=on -timeout=20m $(TEST) $(PKG)

# The first run compiles the linter, which takes some minutes.
.PHONY: lint
lint: ## check style and who imports whom
	$(LINT) run

.PHONY: fmt
fmt: ## format the code
	$(LINT) fmt

.PHONY: build
build: ## build bin/daybook
	go build -trimpath -o bin/daybook ./cmd/daybook

.PHONY: demo
demo: postgres ## watch Daybook at work on a server of its own
	go run ./tests/demo

.PHONY: soak
soak: postgres ## run the races, the model and the linearizability check for a minute each, and 100 rounds of 32 writers
	DAYBOOK_SOAK=60s go test -race -count=1 -timeout=40m -run='Against|AtOnce|Model|Splitting|Linear' ./tests/jobs
	DAYBOOK_ROUNDS=100 go test -race -count=1 -timeout=40m -run=ProjectionsEqual ./tests/verify
	DAYBOOK_ROUNDS=10 go test -race -count=1 -timeout=40m -run=BusyLedger ./tests/verify

.PHONY: mutation
mutation: postgres ## break the SQL in small ways and show that the tests notice
	go run ./tests/mutation

.PHONY: bench
bench: postgres ## compare with others; ARGS are the benchmark's
	cd tests/peers && go run . $(ARGS)

# The benchmarks are a module of their own, which ./... leaves out.
.PHONY: peers
peers: ## check that the benchmarks compile
	cd tests/peers && go vet ./...

.PHONY: cross
cross: ## check that all of it compiles for other systems
	GOOS=darwin GOARCH=arm64 go build ./...
	GOOS=windows go build ./...

.PHONY: ci
ci: test lint peers cross ## everything that a change has to pass

.PHONY: clean
clean: ## remove what was built
	rm -rf bin coverage.out
