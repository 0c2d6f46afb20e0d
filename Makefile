# The one entry point, for people and for CI. `make` prints what there is.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# cargo has the processors already; and tests need what the build places.
.NOTPARALLEL:

SETUP := tests/setup/setup
WASM_CARGO := tests/setup/wasm-cargo
LUAC := $(shell command -v luac5.1 || command -v luac || echo luac5.1)
# The tools that `make setup` installs come first.
export PATH := $(CURDIR)/.weir/tools/bin:$(PATH)

.PHONY: help
help: ## Print this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what building and testing need (once; quick when done)
	@$(SETUP)
	@echo "setup: everything is there"

.PHONY: demo
demo: ## Show Weir at work: real Envoy, real Redis, real requests; seconds, after a first build of minutes
	@$(SETUP) rust wasm envoy
	@$(SETUP) redis || echo "demo: going on without Redis, on the service's own memory"
	@$(MAKE) build-all
	@cargo run --quiet -p weir-tests --bin weir-demo

.PHONY: up
up: ## Start the demo's stack in the background and say what to try
	@$(SETUP) rust wasm envoy
	@$(SETUP) redis || echo "up: going on without Redis, on the service's own memory"
	@$(MAKE) build-all
	@cargo run --quiet -p weir-tests --bin weir-demo -- up

.PHONY: down
down: ## Stop what `make up` started
	@cargo run --quiet -p weir-tests --bin weir-demo -- down

.PHONY: build build-all build-service
build: ## Build what ships: dist/weir and dist/weir_filter.wasm
	@$(SETUP) rust wasm
	@$(MAKE) build-all
build-all: build-service
	$(WASM_CARGO) build --profile filter -p weir-filter
	@tests/setup/place target/wasm/wasm32-unknown-unknown/filter/weir_filter.wasm dist/weir_filter.wasm
build-service:
	cargo build --release -p weir-service --bin weir
	@tests/setup/place target/release/weir dist/weir

.PHONY: test
test: setup build-all test-pure test-wasm test-lua test-service test-e2e test-docs ## Run every test (does its own set-up)

.PHONY: test-pure test-wasm test-lua test-service test-e2e test-docs
test-pure: ## Ring 1: logic without I/O, native
	cargo test -p weir-protocol -p weir-filter
	cargo test -p weir-service --lib --bins

test-wasm: ## Ring 1 again: the filter's logic on wasm32, under Node
	$(WASM_CARGO) test --lib -p weir-filter -p weir-protocol

test-lua: ## Ring 2: the scripts on a private Redis
	cargo test -p weir-service --test '*'

test-service: ## Ring 3: the service over HTTP (needs `make build`)
	cargo test -p weir-tests --lib --bins --test service

test-e2e: ## Ring 4: the shipped filter in real Envoy (needs `make build`)
	cargo test -p weir-tests --test e2e

test-docs: ## What README and docs say: every configuration and command, and the demo (needs `make build`)
	cargo test -p weir-tests --test docs

.PHONY: fuzz
fuzz: ## Fuzz the filter's pure code, FUZZ_SECONDS (600) for each target
	@$(SETUP) rust fuzz
	fuzz/run

.PHONY: lint
lint: setup build-all ## Check formatting, clippy on native and wasm32, Lua syntax, envoy.yaml
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(WASM_CARGO) clippy -p weir-filter -p weir-protocol -- -D warnings
	$(LUAC) -p lua/*.lua
	$${ENVOY_BIN:-.weir/envoy} --mode validate -c envoy.yaml -l warning

.PHONY: bench
bench: ## Measure Envoy without the filter and with it, and what a decision costs Redis; about 2 minutes
	@$(SETUP) rust wasm envoy redis wrk
	@$(MAKE) build-all
	@cargo run --quiet --release -p weir-tests --bin weir-bench

.PHONY: bench-script
bench-script: ## Measure what a decision costs Redis, against a script of one GET and one SET; about 10 seconds
	@$(SETUP) rust redis
	@$(MAKE) build-service
	@cargo run --quiet --release -p weir-tests --bin weir-bench -- script

.PHONY: evidence
evidence: ## Measure the four algorithms and write docs/algorithms.md; under 5 minutes
	@$(SETUP) rust redis
	@$(MAKE) build-service
	@cargo run --quiet --release -p weir-tests --bin weir-evidence

.PHONY: fmt
fmt: ## Format all Rust code
	cargo fmt --all

.PHONY: clean
clean: ## Remove what was built; the tools of `make setup` stay
	rm -rf target dist
