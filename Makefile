# Two commands: `make demo` and `make test`. Each sets up what it needs in .venv, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Any tests of one file or name: make test TESTS="tests/test_geometry.py"
TESTS ?=

.PHONY: demo test lint format bench docs clean

demo: $(VENV)/.demo
	@$(BIN)/hardsight demo

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(TESTS)

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@for part in benchmarks/*.py; do echo "== $$part"; $(BIN)/python $$part || exit 1; done

docs: $(VENV)/.dev
	@$(BIN)/python docs/build.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# The stamps are touched last: an interrupted installation is done again.
$(VENV)/.python:
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 demo"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml constraints.txt
	@$(BIN)/pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[report]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	@$(BIN)/pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.demo
