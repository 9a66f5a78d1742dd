# SPDX-License-Identifier: Apache-2.0
# Everything a developer runs. `make check` is what continuous integration runs.

PYTHON ?= python3
GPU_PYTHON ?= python3
SCALE ?= 1
LEVEL ?= 1
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.DEFAULT_GOAL := check
.PHONY: check test fix bench campaign gpu screen setup

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory test

# pytest ends with 5, and so make with an error, when it finds no test.
test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

fix: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	@set -e; for script in $(wildcard benchmarks/bench_*.py); do \
	    echo "== $$script"; $(BIN)/python "$$script" $(ARGS); done

# Detection campaigns; SCALE=0.02 is a smoke run.
campaign: $(READY)
	@set -e; for script in $(wildcard benchmarks/campaign_*.py); do \
	    echo "== $$script --scale $(SCALE)"; \
	    $(BIN)/python "$$script" --scale $(SCALE) $(ARGS); done

# On a machine with an accelerator: its own Python and torch, nothing installed.
gpu:
	PYTHONPATH=src $(GPU_PYTHON) benchmarks/gpu.py $(ARGS)

# make itself ends with 2 whatever error a recipe gives, so a found defect (1) would read as
# "nothing could be judged" (2). The last line therefore tells the code in words. A script runs
#     make -s setup && .venv/bin/truestep screen --level 1
# which ends with the code of truestep, or with 2 where the set-up fails: nothing was judged.
screen: $(READY)
	@code=0; $(BIN)/truestep screen --level $(LEVEL) $(ARGS) || code=$$?; \
	case $$code in \
	    0) meaning="every device passed" ;; \
	    1) meaning="a defect was found" ;; \
	    2) meaning="nothing could be judged" ;; \
	    *) meaning="truestep was ended from outside" ;; \
	esac; \
	echo "exit code of truestep: $$code ($$meaning)"; exit $$code

setup: $(READY)

# Done anew when what is installed changes. Building in place keeps a half-made .venv unready.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,dev]'
	touch $@
