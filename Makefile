# Two targets do everything on a machine with Python and make. Both create .venv themselves.
#   make reproduce   the paper's experiments: tables and verdicts in the terminal, figures and a page in results/
#   make test        lint, types and all tests
# During development: make check (lint, types and the fast tests), make docs (the site), make bench (after make peers), make clean.

PYTHON ?= python3
BIN := .venv/bin
JOBS ?= auto

# Do not compile modules at installation: most of them are never imported.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

.PHONY: reproduce test check all-tests fast-tests lint browser database docs package bench versions adapters peers clean

reproduce: .venv/installed
	$(BIN)/stormpg reproduce --out results $(ARGS)

# Lint and types run in parallel with the tests; the browser and the database are installed in parallel with the packages.
test:
	+$(MAKE) --no-print-directory --jobs lint all-tests

check:
	+$(MAKE) --no-print-directory --jobs lint fast-tests

all-tests: .venv/installed-dev browser database
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

fast-tests: .venv/installed-dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" -q $(ARGS)

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The page is tested in a real browser, Debian's Chromium if it can be installed. Otherwise these tests are skipped.
browser:
	command -v chromedriver > /dev/null || { apt-get update -qq && apt-get install -y -qq chromium chromium-driver; } > /dev/null 2>&1 || true

# A search is tested on a real PostgreSQL server if it can be installed. It depends on browser because apt cannot run twice.
database: browser
	ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq postgresql; } > /dev/null 2>&1 || true

# The site, in site/. A warning is an error.
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Wheel and source distribution in dist/, checked, and installed into an empty environment outside the repository; and the conda
# recipe, read by rattler-build.
package: .venv/installed-dev
	$(PIP) build twine py-rattler-build
	rm -rf dist
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m benchmarks.package

bench: .venv/installed-dev
	$(BIN)/stormpg bench $(ARGS)

# Python 3.11, 3.12 and 3.13, each with the lowest and with the newest versions, in separate environments.
versions: .venv/installed-dev
	$(BIN)/python -m benchmarks.versions $(ARGS)

# gymnax, brax, Weights & Biases and MLflow are large, and gymnax limits the version of Gymnasium: their tests have a
# separate environment.
adapters: .adapters/installed
	.adapters/bin/python -m pytest -q tests/envs/test_adapters.py tests/bench/test_robots.py tests/runs/test_logs.py $(ARGS)

.adapters/installed: pyproject.toml
	$(PYTHON) -m venv .adapters
	.adapters/bin/pip install --quiet --disable-pip-version-check --editable ".[dev,gymnax,brax,wandb,mlflow]"
	touch $@

# Other libraries for comparison in benchmarks, in separate environments: one for PyTorch and one for JAX.
peers: .peers/installed .peers-jax/installed

.peers/installed:
	$(PYTHON) -m venv .peers
	.peers/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	.peers/bin/pip install --quiet --disable-pip-version-check "stable-baselines3>=2.4" sb3-contrib swig
	.peers/bin/pip install --quiet --disable-pip-version-check "gymnasium[mujoco,box2d]"
	touch $@

.peers-jax/installed:
	$(PYTHON) -m venv .peers-jax
	.peers-jax/bin/pip install --quiet --disable-pip-version-check jax==0.10.2 gymnax==0.0.9 rejax==0.1.3
	touch $@

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --editable ".[cli,report]"
	touch $@

.venv/installed-dev: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --editable ".[dev]"
	touch $@ .venv/installed

clean:
	rm -rf .venv .versions .adapters .peers .peers-jax .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist results site
