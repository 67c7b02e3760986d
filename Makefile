# Two commands do everything on a machine with Python and make; both set up .venv by themselves.
#   make reproduce   the paper's first figure: a table in the terminal and a picture in results/
#   make test        lint, types and all tests
# For work in between: make check (lint, types and the fast tests), make bench, make clean.

PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2

.PHONY: reproduce test check lint bench clean

reproduce: .venv/installed
	$(BIN)/stormpg reproduce --out results $(ARGS)

test: .venv/installed-dev lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

check: .venv/installed-dev lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" -q $(ARGS)

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-dev
	$(BIN)/python -m benchmarks.core $(ARGS)

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/installed-dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@ .venv/installed

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist results
