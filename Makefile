# Each target sets up what it needs in a virtual environment of its own ($(VENV)), from a Python >= 3.11 with pip.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
WORKERS ?= 5

BIN := $(VENV)/bin
INSTALL := $(PYTHON) -m pip --python $(BIN)/python install -qq --disable-pip-version-check --no-warn-script-location \
	-c constraints.txt --config-settings editable_mode=strict
RECIPE := pyproject.toml constraints.txt $(VENV)/sources

.DEFAULT_GOAL := help
.PHONY: help run dev test lint check again soak weekly bench bench-full format clean FORCE

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(VENV)/run.stamp  ## start a registry here, broker included; options for adsumd: make run ARGS='--listen 127.0.0.1:4223'
	@echo "adsumd is about to start; Ctrl-C stops it. Then, in another terminal:"
	@echo "  $(BIN)/adsum register hello --port 8000 --protocol http -- python3 -m http.server 8000"
	@echo "  $(BIN)/adsum instances"
	@echo "  $(BIN)/adsum watch"
	@exec $(BIN)/adsumd $(ARGS)

dev: $(VENV)/dev.stamp  ## set up all that the examples and the tests need

test: $(VENV)/dev.stamp  ## run the tests; some of them: make test ARGS='tests/unit -k fold'
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/dev.stamp  ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint  ## all that has to pass: lint and test; this is what CI runs
	@rm -f .pytest_cache/v/cache/lastfailed
	@$(MAKE) --no-print-directory test || $(MAKE) --no-print-directory again

# Hundreds of real servers on few cores starve each other now and then. A test that passes here has to be mended all the same.
again: $(VENV)/dev.stamp
	@test "$$(grep -c true .pytest_cache/v/cache/lastfailed)" -le 3
	@echo "== flaky or broken: what failed, once more, alone" >&2
	@$(BIN)/python -m pytest -v --last-failed --last-failed-no-failures none $(ARGS)

soak: $(VENV)/dev.stamp  ## random faults for ten minutes, then every record checked: make soak ARGS='--minutes 60 --seed 7'
	@$(BIN)/python -m tests.soak $(ARGS)

weekly: $(VENV)/dev.stamp  ## the tests that take minutes, and a soak of half an hour; another one each week: ARGS='--seed 7'
	@$(BIN)/python -m pytest -n $(WORKERS) -m long
	@$(BIN)/python -m tests.soak --minutes 30 $(ARGS)

bench: $(VENV)/bench.stamp  ## adsum and its peers side by side, in half an hour; some of it: make bench ARGS='burst --rounds 5'
	@$(BIN)/python -m benchmarks fetch >/dev/null || echo "peers that come from Debian will be absent" >&2
	@$(BIN)/python -m benchmarks compare $(ARGS)

bench-full: $(VENV)/bench.stamp  ## the same at every size, in hours, into bench.json; curves into bench/
	@$(BIN)/python -m benchmarks fetch >/dev/null || echo "peers that come from Debian will be absent" >&2
	@$(BIN)/python -m benchmarks compare --full --json bench.json $(ARGS); told=$$?; \
		if [ $$told -le 1 ]; then $(BIN)/python -m benchmarks plot bench.json --into bench || told=1; fi; exit $$told

format: $(VENV)/dev.stamp  ## bring the code into its form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:  ## remove the virtual environment, what was built and the tools' caches
	rm -rf $(VENV) build adsum.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# ---- the virtual environment

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "adsum needs Python 3.11 or newer and $(PYTHON) is not: name another, such as make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --without-pip $(VENV)

# The strict editable install knows the files that were there when it was made: another list of files, another install.
$(VENV)/sources: FORCE | $(BIN)/python
	@find events projector clients -type f ! -name '*.pyc' | LC_ALL=C sort | cmp -s - $@ || \
		find events projector clients -type f ! -name '*.pyc' | LC_ALL=C sort > $@

$(VENV)/run.stamp: $(RECIPE)
	@echo "setting up $(VENV)" >&2
	@$(INSTALL) -e '.[projector,cli,http,speed]'
	@touch $@

$(VENV)/dev.stamp: $(RECIPE)
	@echo "setting up $(VENV)" >&2
	@$(INSTALL) -e '.[dev]'
	@touch $(VENV)/run.stamp $@

$(VENV)/bench.stamp: $(RECIPE)
	@echo "setting up $(VENV)" >&2
	@$(INSTALL) -e '.[bench]'
	@touch $(VENV)/run.stamp $(VENV)/dev.stamp $@
