# Anabranch: the few commands a person needs. `make` or `make help` lists them.
# Every target does its own set-up: a virtual environment in .venv and what the target needs in it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo check test test-long browser lint interop spark-versions environments release bench docs format clean java compiled web

help: ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Anabranch needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	  echo "Install one and run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (once, about a minute)..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "Could not create a virtual environment. On Debian: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . --group dev
	@touch $(STAMP)

java:
	@sh tools/check_java.sh

# Spark starts many processes, which would each compile our modules anew where PYTHONDONTWRITEBYTECODE is set.
compiled: $(STAMP)
	@$(BIN)/python -m compileall -q src tests

demo: java compiled ## The whole story on real flights: a stream goes wrong and is corrected while it runs (about 5 minutes)
	@$(BIN)/anabranch demo

test: java compiled ## All tests in their short form (about 15 minutes)
	@$(BIN)/python -m pytest -m "not long" -n 3 --dist loadfile --no-loadscope-reorder --durations 20

test-long: java compiled ## The long forms: property tests, kill sweeps, soaks
	@$(BIN)/python -m pytest -m "long" --timeout 1800

browser: java compiled ## The page in Chromium: every view, accessibility, a correction, large lakes; takes the pictures of the docs
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	  echo "No Chromium on PATH. On Debian: apt-get install chromium"; exit 1
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group browser
	@cd web && npm ci --silent
	@ANABRANCH_SCREENSHOTS=docs/assets $(BIN)/python -m pytest tests/ui -m "long or not long" --timeout 1800

# What needs no JVM and little time: the format, expressions, the catalog, tables, and that every verb has all of its forms.
QUICK := tests/format tests/expr tests/catalog tests/table tests/project/test_verbs.py tests/project/test_docs.py

check: lint ## Lint, types and the quick tests without a JVM, while you edit
	@$(BIN)/python -m pytest $(QUICK) -m "not long and not spark and not s3" -n 2

lint: $(STAMP) ## Style, types, layer contracts, spelling
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell

format: $(STAMP) ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

interop: java $(STAMP) ## Other Paimon engines read and extend our tables, each in its own environment
	@$(BIN)/python interop/peers.py setup interop
	@$(BIN)/python -m pytest interop --timeout 1800

spark-versions: java $(STAMP) ## The older versions of Spark that are supported, each in its own environment
	@$(BIN)/python interop/peers.py setup spark
	@for version in 4.1 4.2; do \
	  echo "Spark $$version"; \
	  .peers/spark-$$version/venv/bin/python -m pytest tests/spark -m versions --timeout 900 || exit 1; \
	done

# Deprecations of versions that nobody can choose any more are not ours to mend.
environments: $(STAMP) ## Without extras, with the oldest and with the newest libraries: each in its own environment
	@$(BIN)/python interop/peers.py setup environments
	@for name in core oldest newest; do \
	  echo "Environment: $$name"; \
	  test $$name = core && more= || more="tests/frames tests/table"; \
	  .peers/$$name/venv/bin/python -m pytest tests/arrow tests/catalog tests/expr tests/format $$more \
	    -m "not long" -W ignore::DeprecationWarning || exit 1; \
	done

PAGES ?= https://example.invalid/anabranch/raw/main

release: $(STAMP) ## Build a release into dist/ and check it as users meet it (PAGES: where its README's links lead)
	@$(BIN)/python interop/peers.py setup release
	@.peers/release/venv/bin/python tools/release.py --pages $(PAGES)

bench: java $(STAMP) ## Benchmarks beside peers; writes docs/benchmarks.md
	@$(BIN)/python -m benchmarks

docs: $(STAMP) ## Build the documentation into site/VERSION, beside other versions that are there
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/build_site.py

web: ## Bundle the local page from web/ into the package (needs npm; what it makes is committed)
	@cd web && npm ci --silent && npm run build

clean: ## Remove everything that was generated, the environment too
	rm -rf $(VENV) .peers build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
