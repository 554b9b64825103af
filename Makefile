# Every target prepares .venv first where it needs it; a second run is instant. `make` alone lists the targets.
.DEFAULT_GOAL := help
.PHONY: help install demo test test-long models chaos check bench picture clean

python := .venv/bin/python
# How many files of tests run at once: most tests wait for a server, so more than there are cores; fewer where they
# follow the real time, or kill and freeze whole systems.
TEST_STREAMS ?= 3
TIMED_TEST_STREAMS ?= 2
# The longest files first and in this order, so that no stream is left alone with one at the end.
timed := $(wildcard tests/chaos tests/cluster tests/component/dispatcher)
# Settings of the caller's shell that must not reach our interpreter.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

install: ## prepare .venv only; the command is then .venv/bin/tidewheel
	@tools/install.sh

demo: install ## run a whole system on a sample crontab until Ctrl-C (DEMO_SECONDS=40 ends by itself, with a verdict)
	@$(python) -m tools.demo

test: install ## run every test on real servers that it starts itself: three files at a time, then the timed ones two at a time
	@ETCD_BIN="$$(tools/etcd_for_tests.sh)" && export ETCD_BIN && SPIN_BIN="$$(tools/spin_for_tests.sh)" && export SPIN_BIN && \
	$(python) -m pytest -n $(TEST_STREAMS) --dist loadfile $(addprefix --ignore=,$(timed)) && \
	$(python) -m pytest -n $(TIMED_TEST_STREAMS) --dist loadfile --no-loadscope-reorder $(timed)

test-long: install ## run the longer suites, and every property test on examples that were not tried before
	@ETCD_BIN="$$(tools/etcd_for_tests.sh)" && export ETCD_BIN && HYPOTHESIS_SEARCH=1 && export HYPOTHESIS_SEARCH && \
	$(python) -m pytest -m long && $(python) -m pytest -n $(TEST_STREAMS) --dist loadfile tests/unit

models: install ## check the two models of the protocol of ownership, and that each planted defect breaks one
	@SPIN_BIN="$$(tools/spin_for_tests.sh)" && export SPIN_BIN && $(python) -m pytest tests/models

chaos: install ## moves and faults under load until CHAOS_SECONDS are over, judged by a history checker (SEED=… to repeat)
	@ETCD_BIN="$$(tools/etcd_for_tests.sh)" && export ETCD_BIN && CHAOS_SECONDS=$(CHAOS_SECONDS) SEED=$(SEED) $(python) -m tests.chaos

check: install ## style, types, import rules, SQL rules, generated code and tidiness
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy
	.venv/bin/lint-imports
	$(python) -m tools.sql_lint
	$(python) -m tools.generate_stubs --check
	$(python) -m tools.tidy

bench: install ## measure throughput, lateness, moves and takeovers on this machine (CASES=move,kill9,drain,rolling picks)
	@$(python) -m tools.bench

picture: install ## render the demo's screen to SVG for the README
	@$(python) -m tools.picture

clean: ## remove what the other targets made
	rm -rf .venv build dist *.egg-info worker_sdk/python/*.egg-info worker_sdk/python/build
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
