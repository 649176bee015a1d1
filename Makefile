# Everything here needs Go and make, and nothing else: tools are pinned in tools/ and built by the go command.

GO         ?= go
FUZZTIME   ?= 20s
BENCH      ?= .
BENCHTIME  ?= 1s
BENCHCOUNT ?= 1
TESTFLAGS  ?=

# The race detector needs a C compiler; without one, the tests run without it.
RACE ?= $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

# Builds leave out debug information, which saves a seventh of the time. All have the same flags, so that everything is built once.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -gcflags=all=-dwarf=false)

GOFMT    = $(shell $(GO) env GOROOT)/bin/gofmt
TOOL     = $(GO) tool -modfile=$(CURDIR)/tools/go.mod
BUF      = $(GO) tool -modfile=$(CURDIR)/tools/buf/go.mod buf
OFHTTP   = dashboard.json alerts.yml
API      = cd tools && $(GO) run ./api .. ../otel
FIELDS   = cd tools && $(GO) run ./options | $(GOFMT)
MODULES := $(sort $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './tools/*')))

.DEFAULT_GOAL := help
.PHONY: help demo test test-modules test-long test-full grpc-suite http-suite bench results figures microbench walks lint generate fuzz

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## three real backends, the same calls without and with hedging (DEMO_FLAGS="-h" lists the flags)
	@cd bench && $(GO) run -buildvcs=false . demo $(DEMO_FLAGS)

# Without go vet, which make lint runs: twice over the dependencies it would take an eighth of the processor time.
test: ## the tests that guard a change, in two minutes: go test -race -short (TESTFLAGS="-run X")
	@$(if $(RACE),,echo 'note: no C compiler found, so the race detector is off')
	$(GO) test -vet=off $(RACE) -short $(TESTFLAGS) ./...

# Simulations, which make test leaves out, run here: the race detector makes them ten times slower and finds little in them.
test-modules: ## what a change may break beyond make test: simulations from one seed, the other modules, gRPC's own tests and those of net/http
	$(GO) test -vet=off $(TESTFLAGS) ./...
	@set -e; for m in $(filter-out .,$(MODULES)) tools; do \
		echo "cd $$m && $(GO) test -vet=off $(RACE) -short $(TESTFLAGS) ./..."; \
		(cd $$m && $(GO) test -vet=off $(RACE) -short $(TESTFLAGS) ./...); done
	cd internal/compat/otel && $(GO) test -vet=off $(TESTFLAGS) -run 'Panels|Rollout' .
	@$(MAKE) --no-print-directory grpc-suite
	@$(MAKE) --no-print-directory http-suite SUITE_FLAGS="-modes untuned"

test-long: ## for every night: all seeds and schedules of simulations, the other modules whole
	HEDGE_TESTS=long $(GO) test -timeout 30m $(TESTFLAGS) ./...
	HEDGE_TESTS=long $(GO) test $(RACE) -short -timeout 30m $(TESTFLAGS) ./...
	cd bench && HEDGE_TESTS=long $(GO) test $(TESTFLAGS) ./run
	@failed=0; for m in $(filter-out .,$(MODULES)) tools; do \
		echo "cd $$m && $(GO) test $(TESTFLAGS) ./..."; \
		(cd $$m && $(GO) test $(TESTFLAGS) ./...) || failed=1; done; exit $$failed

# One package at a time, since some of the tables are measured in real time.
test-full: ## the tables of the documentation, in an hour on an idle machine (TESTFLAGS="-run Overload")
	HEDGE_TESTS=full $(GO) test -p 1 -timeout 3h -v $(TESTFLAGS) ./...
	$(if $(RACE),$(GO) test $(RACE) -timeout 1h $(TESTFLAGS) ./...)

grpc-suite: ## gRPC's own end-to-end tests with the interceptors on every connection (SUITE_FLAGS="-h" lists the flags)
	@cd internal/compat && $(GO) run -buildvcs=false ./grpcsuite $(SUITE_FLAGS)

http-suite: ## Go's own tests of net/http with hedgehttp.Transport around the transport of their clients (SUITE_FLAGS="-h" lists the flags)
	@cd internal/compat && $(GO) run -buildvcs=false ./httpsuite $(SUITE_FLAGS)

bench: ## every published figure beside ours: tables, pictures, bench/results (BENCH_FLAGS="-h" lists the flags)
	@cd bench && $(GO) run -buildvcs=false . report $(BENCH_FLAGS)

# The table of internal/trigger, which docs/figures.txt checks, stays.
SIMULATED = worlds.md

# What docs/results/README.md has too, the workloads and weak spots, is left out of docs/results.md.
results: ## make bench in virtual time, where figures are exact, and put its pages and pictures into docs/results and docs/results.md
	@rm -rf bench/results
	@cd bench && $(GO) run -buildvcs=false . report -clock virtual $(BENCH_FLAGS)
	@find docs/results -type f $(addprefix ! -name ,$(SIMULATED)) -delete && cd bench/results && \
		for f in *.md *.png frontier.csv; do [ "$$f" = SUMMARY.md ] || cp "$$f" ../../docs/results/; done
	@{ sed '/^<!-- measured -->$$/q' docs/results.md; echo; \
		awk '/^### /{left = /The workloads|Weak spots/} !left' bench/results/SUMMARY.md | sed -e 's,docs/results/,results/,g' -e 's/^### /## /'; } >docs/results.tmp && \
		mv docs/results.tmp docs/results.md

figures: ## run the commands that print the figures of the documentation; say which are stale (FIGURES=docs/guard.md, FIGURES_FLAGS=-all)
	@cd tools && $(GO) run ./figures $(FIGURES_FLAGS) $(FIGURES)

microbench: ## what a call, a record and a trigger read cost (BENCH=., BENCHTIME=1s, BENCHCOUNT=1, COST_FLAGS)
	@set -e; for m in $(MODULES); do \
		(cd $$m && $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(BENCHCOUNT) ./...); done
	@cd bench && $(GO) run -buildvcs=false . cost $(COST_FLAGS)

walks: ## how many functions and files a call enters, and how often it turns back to a file (WALKS_FLAGS="-list 'unary hedged'")
	@cd tools && $(GO) run ./walks $(WALKS_FLAGS)

# With RACE, so that it needs no build of the dependencies besides that of the tests.
lint: ## gofmt, go vet and staticcheck over every module; the exported names are those of api/v0.txt; the dashboard and alerts of HTTP are those of gRPC; pages have the text of docs/figures.txt
	@set -e; bad=$$(find . -name '*.go' -not -name '*.pb.go' -exec $(GOFMT) -l {} +); \
		if [ -n "$$bad" ]; then echo "not formatted by gofmt:"; echo "$$bad"; exit 1; fi
	@set -e; staticcheck=$$($(TOOL) -n staticcheck); export GOFLAGS="$$GOFLAGS $(RACE)"; for m in $(MODULES); do \
		echo "== $$m: go vet, staticcheck"; (cd $$m && $(GO) vet ./... && $$staticcheck ./...); done
	@cd tools && $(GO) run ./figures -check
	@($(API)) | diff api/v0.txt - || { echo 'the API differs from api/v0.txt: if you mean it, run "make generate" and commit what it writes'; exit 1; }
	@($(FIELDS)) | diff config/fields.go - || { echo 'run "make generate" and commit what it writes'; exit 1; }
	@set -e; cd tools; for f in $(OFHTTP); do $(GO) run ./httpnames ../otel/$$f | diff ../otel/$${f%.*}-http.$${f##*.} - || \
		{ echo 'run "make generate" and commit what it writes'; exit 1; }; done

generate: ## rewrite the stubs of proto/, with the pinned buf and plugins, the fields of package config, the list of exported names, and the dashboard and alerts of HTTP
	@cd proto && $(BUF) lint && $(BUF) generate
	@($(FIELDS)) >config/fields.go
	@($(API)) >api/v0.txt
	@cd tools && for f in $(OFHTTP); do $(GO) run ./httpnames ../otel/$$f >../otel/$${f%.*}-http.$${f##*.}; done

fuzz: ## run each fuzz target for a while (FUZZTIME=20s)
	@set -e; for m in $(MODULES); do (cd $$m; dirs=$$($(GO) list -f '{{.Dir}}' ./...); for d in $$dirs; do \
		for f in $$(cat $$d/*_test.go 2>/dev/null | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p'); do \
			echo "== $$d: $$f for $(FUZZTIME)"; \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$d; \
		done; done); done
