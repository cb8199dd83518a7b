# Two commands: `make demo` and `make test`. Each sets up what it needs in .venv, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# For the demo's page, and to explore its samples.
DEMO_EXTRAS := report,explore
# Any tests of one file or name: make test TESTS="tests/test_geometry.py"
TESTS ?=

.PHONY: demo test quick fuzz kills lint format bench docs clean

demo: $(VENV)/.demo
	@$(BIN)/hardsight demo

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(TESTS)

# The half of the tests that takes under 90 seconds on two cores.
quick: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(TESTS)

# A few seconds of this are in `make test`: here 200 kills.
kills: $(VENV)/.dev
	@HARDSIGHT_KILLS=30 $(BIN)/python -m pytest tests/training/test_resume.py -k killed
	@HARDSIGHT_KILLS=50 $(BIN)/python -m pytest tests/engines/test_shards.py -k killed

# Half an hour: ten thousand damaged files over every reader and command, and the files made to become large.
fuzz: $(VENV)/.dev
	@$(BIN)/python tests/hostile/fuzz.py 10000

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@for part in benchmarks/*.py; do echo "== $$part"; $(BIN)/python $$part || exit 1; done

# The pages made from code and rows, and the site below build/site.
docs: $(VENV)/.docs
	@$(BIN)/python docs/build.py
	@$(BIN)/python docs/build_site.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# The stamps are touched last: an interrupted installation is done again. One that is there already is out of date.
define install
@test -x $(BIN)/pip || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 demo"; exit 1; }
@test -e $@ && echo "bringing $(VENV) up to date" || echo "installing torch and $(2) into $(VENV) ($(3), once)"
@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
@$(BIN)/pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[$(1)]' $(4)
endef

$(VENV)/.demo: pyproject.toml constraints.txt
	$(call install,$(DEMO_EXTRAS),the rest,a minute or two)
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(call install,docs,the site generator,a minute)
	@touch $@

$(VENV)/.dev: pyproject.toml studies/pyproject.toml constraints.txt
	$(call install,dev,what the tests need,a few minutes,--editable studies)
	@touch $@ $(VENV)/.demo
