.DEFAULT_GOAL := help
SHELL := /bin/bash
T ?= tests
B ?= $(filter-out harness nodes,$(basename $(notdir $(wildcard benchmarks/*.py))))
SIZE ?= full
BIN := .venv/bin

.PHONY: help venv demo docs test lint soak bench clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: ## .venv with everything installed; nothing to do when it is current
	@scripts/venv.sh

demo: venv ## a fleet of four sites on this machine for a minute, then the verdict (ARGS="--sites 6 --chaos")
	@$(BIN)/trunkline demo --for 60s $(ARGS)

lint: venv ## ruff, mypy --strict, layers, the documentation's links
	@echo "lint: ruff"; $(BIN)/ruff check --no-cache src tests benchmarks docs examples && $(BIN)/ruff format --check -q src tests benchmarks docs examples
	@echo "lint: mypy --strict"; $(BIN)/mypy
	@echo "lint: layers"; $(BIN)/lint-imports --no-cache | tail -n +4
	@echo "lint: docs"; NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs: venv ## the documentation, served while you write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

test: lint ## lint, then the tests on real Postgres and Spark (make test T=tests/store runs a part)
	@$(BIN)/pytest -m "not soak" $(T)

soak: venv ## long runs: many universes, many kill points
	@TRUNKLINE_SOAK=1 $(BIN)/pytest --timeout 3600 -s $(T)

bench: venv ## benchmarks with goals (make bench B=net SIZE=small runs one; results in benchmarks/results)
	@for name in $(B); do $(BIN)/python benchmarks/$$name.py --size $(SIZE) || exit 1; done

clean: ## remove .venv and everything that was made
	@rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
	@find . -name __pycache__ -prune -exec rm -rf {} +
