# Two commands matter: `make demo` and `make test`. Both do all set-up; the second run starts at once.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCKS := locks/boot.lock locks/dev.lock
PLUGINS := examples/plugins/notes examples/plugins/pi
# By content, not by date: a checkout that comes back to the same locks is ready.
STAMP := $(VENV)/.ready-$(shell { $(PYTHON) -V; cat pyproject.toml $(PLUGINS:=/pyproject.toml) $(LOCKS); } 2>/dev/null | sha256sum | cut -c1-16)

# The other agents, pinned, in the user's cache: a folder for each content of their locks.
AGENT_LOCKS := locks/agents.lock locks/pi/package.json locks/pi/package-lock.json
AGENTS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/proctor/agents/$(shell cat $(AGENT_LOCKS) | sha256sum | cut -c1-16)
test test-fast accept chaos conformance hostile mutants bench bench-quick browser matrix: export PROCTOR_AGENTS ?= $(shell test -d "$(AGENTS)" && echo "$(AGENTS)")

# Bytecode in one place, whatever the caller's settings: without it each Proctor process compiles all it imports, and
# each test worker rewrites every test module.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

# A custom CA: if one of these variables names its file, pip, uv and npm all get it, each under the name that it reads.
# A variable that is set keeps its value.
CA := $(firstword $(SSL_CERT_FILE) $(PIP_CERT) $(REQUESTS_CA_BUNDLE) $(CURL_CA_BUNDLE) $(NODE_EXTRA_CA_CERTS))
ifneq ($(CA),)
export SSL_CERT_FILE ?= $(CA)
export PIP_CERT ?= $(CA)
export NODE_EXTRA_CA_CERTS ?= $(CA)
endif
# Otherwise uv ignores a CA that is installed on the machine.
export UV_SYSTEM_CERTS ?= true

# The agents' wheels are large.
export UV_HTTP_TIMEOUT ?= 600
export UV_NO_PROGRESS ?= 1

.PHONY: help agents demo test-fast test wheel test-wheel test-pythons chromium browser check accept conformance chaos hostile mutants bench-quick bench contract matrix lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

$(STAMP):
	@echo "setting up $(VENV)"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r locks/boot.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes --only-binary :all: locks/dev.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable . $(addprefix --editable ,$(PLUGINS))
	@rm -f $(VENV)/.ready-*
	@touch $@

agents: $(STAMP) ## install the other agents, pinned, into the user's cache
	@$(BIN)/python locks/install.py "$(AGENTS)" $(BIN)/uv

demo: $(STAMP) ## run four missions through the real Codex, offline
	$(BIN)/proctor run examples/quickstart.yaml

# Many tests wait for a process, so there are two workers per core. Each worker collects all tests: more are slower.
FAST_WORKERS ?= $(shell expr $$(nproc) \* 2)

test-fast: $(STAMP) ## short tests that start no agent and no Proctor process
	$(BIN)/python tests/offline.py $(BIN)/pytest -n $(FAST_WORKERS) -m "fast and not long" --hypothesis-profile fast

# Tests of real agents wait more than they compute, so there are more workers than cores. Each takes one test at a time
# from one queue, which has the longest tests first.
TEST_WORKERS ?= 6

test: $(STAMP) ## all tests
	$(BIN)/python tests/offline.py $(BIN)/pytest -n $(TEST_WORKERS) --dist load --maxschedchunk 1 -m "not extended" --durations 20

# Offline: the build requirements are in the environment, from their lock.
wheel: $(STAMP) ## build the wheel and the sdist into dist/
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist -t sdist -t wheel

test-wheel: $(STAMP) ## install the wheel in dist/ into an empty environment and run its demo
	$(BIN)/python tests/wheel.py $(BIN)/uv

test-pythons: $(STAMP) ## test-fast on every installed Python from 3.11 to 3.14
	$(BIN)/python tests/pythons.py $(BIN)/uv $(FAST_WORKERS)

# Debian's, where it can be installed. Any other on PATH will do.
chromium:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null; } \
	  || { echo "no chromium here: install Debian's package chromium, or put a chromium on PATH" >&2; exit 1; }
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

browser: $(STAMP) chromium ## the example application, and the probes that look at pages, in a real browser
	$(BIN)/python tests/offline.py $(BIN)/pytest -p no:xdist browser

check: $(STAMP) ## format, lint, types, import contracts, words to avoid, field docstrings; print the package's shape
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.wordlist
	$(BIN)/python -m tools.field_docs
	$(BIN)/python -m tools.shape

accept: $(STAMP) ## timing tests on the real agents
	$(BIN)/python tests/offline.py $(BIN)/pytest -p no:xdist accept

# Such as SEEDS=1,2,30-40; else the default ones.
SEEDS ?=

chaos: $(STAMP) conformance ## long-running fault-injection tests (SEEDS=… selects seeds), and the conformance suite
	$(BIN)/python tests/offline.py $(BIN)/python -m chaos --seeds "$(SEEDS)"
	$(BIN)/python tests/offline.py $(BIN)/python -m chaos.sessions --seeds "$(or $(SEEDS),1-20)"
	PROCTOR_TIMES=5 $(BIN)/python tests/offline.py $(BIN)/pytest -p no:xdist tests/acceptance/test_many_at_once.py
	PROCTOR_STREAMS=12000 $(BIN)/pytest -p no:xdist --timeout 900 tests/evidence/test_redact_many.py

conformance: $(STAMP) ## the whole conformance suite on every runtime, transport and isolation
	$(BIN)/python tests/offline.py $(BIN)/pytest -n 2 tests/acceptance/test_conformance.py \
	  tests/testing/test_conformance_mutants.py examples/plugins/pi/tests/test_conformance.py

# Such as ONLY=scale: run one area.
ONLY ?=

bench: $(STAMP) chromium ## benchmarks of speed and size against their targets (ONLY=attempts, probes, scale or context: one area)
	$(BIN)/python tests/offline.py $(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

bench-quick: $(STAMP) ## each benchmark once, to see that it works
	$(BIN)/python tests/offline.py $(BIN)/pytest -p no:xdist tests/test_bench.py

# Such as WITHOUT=hiding: leave out one of the defences (restore, controls, hiding, feedback). The command then fails.
WITHOUT ?=

hostile: $(STAMP) chromium ## play the catalogue of cheats through the real Codex: none may be verified
	$(BIN)/python tests/offline.py $(BIN)/python -m hostile $(if $(WITHOUT),--without $(WITHOUT))

mutants: $(STAMP) ## break the code on purpose, and check that the tests that cite each requirement notice
	$(BIN)/python -m tools.mutants $(ROWS)

contract: $(STAMP) ## write the contract's snapshot and the reference pages again
	$(BIN)/python -m tools.reference

matrix: $(STAMP) ## run the conformance suite on every runtime and write the matrix again
	$(BIN)/python tests/offline.py $(BIN)/python -m tools.matrix . pi

lock: ## resolve the locks again
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet uv; }
	echo uv | $(BIN)/uv pip compile - --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet -o locks/boot.lock
	$(BIN)/uv pip compile pyproject.toml locks/boot.lock --all-extras --group build --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet -o locks/dev.lock
	$(BIN)/uv pip compile pyproject.toml --extra codex --extra model --constraints locks/dev.lock --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet -o locks/demo.lock
	echo claude-agent-sdk==0.2.182 | $(BIN)/uv pip compile - --no-deps --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet -o locks/agents.lock
	cd locks/pi && rm -f package-lock.json && npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund
	$(PYTHON) locks/no_addresses.py locks/pi/package-lock.json

clean: ## remove what set-up made
	rm -rf $(VENV)
