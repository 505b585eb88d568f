# Two commands do everything on a machine with python3 (3.11-3.13), make and git:
#   make report   makes the environment, builds every page from the recorded campaigns, measures the quickstart campaign
#                 live on this machine's CPU and adds its pages, prints where they are; `make pages` leaves out the last
#                 part, and torch with it
#   make test     makes what it needs and runs the tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

TORCH  ?= torch==2.13.0   # any torch >= 2.9; name a CPU build where the index's default is a CUDA one

.PHONY: report pages test test-slow soak check lint format lock audit bench docs pictures lab quickstart nightly clean

report: pages quickstart

pages: $(VENV)/.base
	$(BIN)/workbench report

test: $(VENV)/.dev
	$(BIN)/pytest -n auto

# Processes that are stopped and killed at every point, through papermill; a Ray cluster of several nodes of which some
# are killed; every page of several campaigns. Minutes.
test-slow: $(VENV)/.dev $(VENV)/.engine $(VENV)/.ray
	$(BIN)/pytest -n auto --dist loadgroup -m slow

# Long ones: every reader gets changed inputs for WORKBENCH_FUZZ_MINUTES (default 0.2) minutes each, by coverage where
# atheris is installed (Linux, Python 3.11-3.13); inputs that broke something are left in build/fuzz. Then the client's
# load, the log of 5 GB, the index, 200 simulated searches, the shipped drafter served by the embedded engine.
soak: $(VENV)/.dev $(VENV)/.engine
	-$(BIN)/python -m pip install -q atheris
	$(BIN)/pytest -n auto -m soak

# What CI runs.
check: lint test

# Types are checked against torch, so the linter needs the embedded engine's packages too.
lint: $(VENV)/.dev $(VENV)/.engine
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/nbstripout --verify --extra-keys "metadata.papermill cell.metadata.papermill" notebooks/*.ipynb

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/nbstripout --extra-keys "metadata.papermill cell.metadata.papermill" notebooks/*.ipynb

# The versions that CI installs: those of this environment.
lock: $(VENV)/.dev $(VENV)/.engine
	@{ echo "# Versions that CI installs; made by \`make lock\`, checked by tests/test_lock.py. Not torch: see TORCH in the Makefile."; \
	  $(BIN)/python -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^+]+$$' \
	  | grep -viE '^(torch|triton|nvidia|ray|pip|setuptools|wheel)[-_=]'; } > .ci/constraints.txt

# Known vulnerabilities of these versions; asks pypi.org or OSV, so it needs the network.
audit: $(VENV)/.dev
	$(BIN)/python -m pip install -q pip-audit
	$(BIN)/pip-audit --requirement .ci/constraints.txt --no-deps --disable-pip

bench: $(VENV)/.dev
	$(BIN)/pytest -m benchmark -s tests/benchmarks

docs: $(VENV)/.base
	$(BIN)/python tools/build_docs.py

# The pictures of README.md, from real pages, by Chromium.
pictures: $(VENV)/.dev
	$(BIN)/workbench report
	$(BIN)/workbench diagnose data/recorded/h200_smollm2/_servers/eagle-flag/server.log.gz --page >/dev/null || true
	$(BIN)/python tools/build_pictures.py

# A live campaign on the embedded engine: CPU, a real 135M target, a real drafter, minutes.
quickstart: $(VENV)/.engine
	$(BIN)/workbench run quickstart
	$(BIN)/workbench report

# An example of a nightly batch, see docs/nightly.md. Make turns every failure into its own code 2: cron and CI call the
# script itself, whose exit code is 3 for a regression.
CAMPAIGN ?= quickstart
nightly: $(VENV)/.engine
	WORKBENCH=$(BIN)/workbench tools/nightly.sh $(CAMPAIGN)

# LAB are options of the command, such as LAB="--no-browser --port 8890".
lab: $(VENV)/.lab
	$(BIN)/workbench lab $(LAB)

clean:
	rm -rf $(VENV) reports/*.html reports/*/ .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else \
	  f"Python 3.11-3.13 is needed, {sys.executable} is {v[0]}.{v[1]}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	@echo "installing the workbench's packages into $(VENV) (the first time about a minute, 830 MB on disk, no torch)"
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.engine: pyproject.toml | $(VENV)/.base
	@echo "installing the embedded engine's packages into $(VENV) ($(strip $(TORCH)))"
	$(BIN)/python -m pip install -q '$(strip $(TORCH))'
	$(BIN)/python -m pip install -q -e '.[reference]'
	@touch $@

$(VENV)/.lab: pyproject.toml | $(VENV)/.base
	$(BIN)/python -m pip install -q -e '.[lab]'
	@touch $@

$(VENV)/.ray: pyproject.toml | $(VENV)/.dev
	@echo "installing Ray into $(VENV)"
	$(BIN)/python -m pip install -q -e '.[ray]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing the test and lint tools into $(VENV)"
	$(BIN)/python -m pip install -q -e '.[test,lint]'
	@touch $@ $(VENV)/.base
