# Every target sets itself up: the first one makes .venv from the lock, any Python ≥ 3.11 will do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
.DEFAULT_GOAL := help

.PHONY: help demo test long bench labextension lint docs conformance lock wheel clean setup
.DELETE_ON_ERROR:

help:  ## what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; PYTHON=... names another" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP)  ## .venv from the lock

demo: $(STAMP)  ## a tour on real data, under two minutes
	@$(BIN)/krt demo

test: $(STAMP)  ## all but the slow tests, and those that need a browser
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow and not long and not lab"

long: $(STAMP)  ## the long runs: minutes each of what make test does for seconds
	$(BIN)/python -m pytest -m long --durations=0

bench: $(STAMP)  ## measure against stock Jupyter; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

MODULES := labextension/node_modules/.package-lock.json
LABEXTENSION := kernel_runtime/jupyter/labextension
LINK := $(VENV)/share/jupyter/labextensions/@kernel-runtime/lab

$(MODULES): labextension/package-lock.json labextension/package.json
	cd labextension && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(LABEXTENSION)/package.json: $(MODULES) labextension/tsconfig.json labextension/rspack.config.js $(wildcard labextension/src/* labextension/style/*)
	cd labextension && npm run --silent build

labextension: $(STAMP) $(LABEXTENSION)/package.json  ## the page's part, from npm, linked into .venv
	@mkdir -p $(dir $(LINK))
	@ln -sfn $(CURDIR)/$(LABEXTENSION) $(LINK)

lint: $(STAMP)  ## ruff, layers, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
ifneq ($(or $(CI),$(wildcard $(MODULES))),)
	$(MAKE) --no-print-directory $(MODULES)
	cd labextension && npm run --silent check && npm run --silent test
endif

docs: $(STAMP)  ## every link resolves, every command is documented
	$(BIN)/python -m pytest tests/docs

conformance: $(STAMP)  ## other people's suites, ours against stock
	$(BIN)/python -m tests.conformance --write

lock: $(STAMP)  ## compile requirements/*.txt anew
	requirements/lock.sh $(CURDIR)/$(BIN)/pip-compile

wheel: $(STAMP) labextension  ## dist/, the page's part in it
	rm -f dist/*.whl
	$(BIN)/python -m build --no-isolation --wheel --outdir dist .

clean:  ## remove what was made here
	rm -rf labextension/node_modules labextension/lib $(LABEXTENSION)
	rm -rf $(VENV) .conformance .bench .lab-screenshots build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
