# Every target sets up what it needs on a fresh machine: its own .venv, then the work.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help

.PHONY: help demo test test-slow check bench format clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/run.done ## Train a two-party model on bundled data and write a report
	$(BIN)/colonnade demo

test: check ## Check the code, then run all tests (a few minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(VENV)/dev.done ## Run the tests that take longer, and property tests with new examples
	$(BIN)/python -m pytest -m "slow or hypothesis" --hypothesis-profile=explore

check: $(VENV)/dev.done ## Lint, type-check and check the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/dev.done ## Measure speed against peers, with the bars that must hold
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.transport
	$(BIN)/python -m benchmarks.restart
	$(BIN)/python -m benchmarks.secure_linear
	$(BIN)/python -m benchmarks.secure_lr
	$(BIN)/python -m benchmarks.secure_lr_leaks
	$(BIN)/python -m benchmarks.alignment
	$(BIN)/python -m benchmarks.crypto
	$(BIN)/python -m benchmarks.forecast
	$(BIN)/python -m benchmarks.ftl_speed
	$(BIN)/python -m benchmarks.label_defences
	$(BIN)/python -m benchmarks.prada_speed
	$(BIN)/python -m benchmarks.fedcvt_speed
	$(BIN)/python -m benchmarks.mpdl_speed
	$(BIN)/python -m benchmarks.fairvfl_speed
	$(BIN)/python -m benchmarks.inputs
	$(BIN)/python -m benchmarks.choice
	$(BIN)/python -m benchmarks.strangers

format: $(VENV)/dev.done ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what the other targets made
	rm -rf $(VENV) colonnade-demo* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Exactly this torch, before anything else asks for "torch": a range would pull gigabytes of CUDA libraries.
$(VENV)/torch.done:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "colonnade needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	touch $@

$(VENV)/run.done: $(VENV)/torch.done pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/dev.done: $(VENV)/torch.done pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/run.done
