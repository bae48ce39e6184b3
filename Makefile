# The same commands for a person and for CI. Every target sets itself up; a second run is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SITE_STAMP := $(VENV)/.site-installed
WORKERS ?= auto
HOT_TESTS := tests/test_compiled.py tests/wire tests/transport tests/namesrv tests/store/test_*.py tests/message tests/client/test_*.py tests/broker/handlers tests/pipeline/test_row_messages.py tests/pipeline/test_row_encoding.py

.DEFAULT_GOAL := help
.PHONY: help compile demo run browser test test-interpreted readme test-long check format interop interop-quick bench bench-quick bench-spark soak soak-quick limits docs site clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fusee needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@$(BIN)/python -c 'from fusee.pipeline.java import find_java; find_java()' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[jdk]'
	@touch $@

# Nothing to do where all is compiled; says so in a line, and is content, where there is no C compiler.
compile: $(STAMP) ## compile the hot modules in place, where a C compiler is at hand; FUSEE_PURE=1 runs them as they are
	@$(BIN)/python hatch_build.py

demo: compile ## see it work: a cluster, messages, a killed broker, Spark; ends with a report in build/
	@$(BIN)/python examples/demo.py --report build/fusee-demo.html

run: compile ## a server on this machine: name server, broker and console in one process
	@$(BIN)/fusee serve

test: compile ## the whole suite except interoperation with other runtimes; what is compiled also as it is written
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not interop and not registry"
	@$(MAKE) --no-print-directory test-interpreted

readme: $(STAMP) ## the README followed from a built wheel, in an empty environment without a compiler; Spark where there is no Java
	@$(BIN)/python -m pytest -q -m registry tests/docs/test_readme_from_wheel.py tests/pipeline/test_java_from_registry.py

# tests/test_compiled.py fails where a run does not have the form that it is meant to have.
test-interpreted: $(STAMP) ## the tests of the hot modules with all of them interpreted
	@FUSEE_PURE=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not interop" $(HOT_TESTS)

test-long: compile ## the long forms: every crash point, 50 rounds of kill -9 on a store and 20 on a broker, more random histories, 80 long churns, 1,000 simulated clusters, 100 faults on real ones, kills around Spark
	@FUSEE_LONG=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --timeout 3600 tests/store/crash tests/store/kill tests/broker/kill tests/store/test_store_state_machine.py tests/simulation tests/faults tests/pipeline/kill

browser: ## chromium and its driver, for the console's tests in a real browser (Debian; needs root)
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium chromium-driver; }

check: $(STAMP) ## format, lint, types, floors, generated documents
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python scripts/make_docs.py --check

format: $(STAMP) ## rewrite the sources in the house style
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

interop: compile ## against the real Apache RocketMQ (needs Java 11+ and Maven)
	@$(BIN)/python -m pytest --timeout 600 -m interop tests/interop

interop-quick: compile ## the short form of interop, for CI
	@$(BIN)/python -m pytest --timeout 300 -m "interop and quick" tests/interop

bench: compile ## every benchmark, beside its peers in the same run
	@$(BIN)/python -m benchmarks

bench-quick: compile ## the same with short runs: shape, not numbers
	@$(BIN)/python -m benchmarks --quick

bench-spark: compile ## the pipeline beside Spark's Kafka source and sink (needs Java and Maven)
	@$(BIN)/python -m benchmarks --only spark

soak: compile ## 30 minutes of the clients at full rate with churn: nothing is lost and nothing grows
	@$(BIN)/python -m scripts.soak --minutes 30

soak-quick: compile ## the same for 2 minutes, for CI
	@$(BIN)/python -m scripts.soak --minutes 2

limits: compile ## bad input and load: what is done to a broker, and the bound that held
	@$(BIN)/python -m scripts.limits

$(SITE_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	@touch $@

site: $(SITE_STAMP) ## the documents as a site in build/site; every link and anchor must lead somewhere
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "the site is in build/site; look at it by: python3 -m http.server --directory build/site"

docs: $(STAMP) ## regenerate the documents that are made from tables
	@$(BIN)/python scripts/make_docs.py

clean: ## remove everything that the targets made
	rm -rf $(VENV) build dist src/fusee/__compiled__ .mypy_cache .ruff_cache .pytest_cache .hypothesis
