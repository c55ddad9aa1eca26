# Every target makes the virtual environment that it needs. Nothing is installed by hand.
#   make test PYTHON=python3.12        another interpreter (remove .venv first)

PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
PEER := .venv-peer
BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# The lower bounds in pyproject.toml.
OLDEST_VERSIONS := scikit-learn==1.6.1 numpy==2.0.2 scipy==1.14.1
OLDEST_TESTS = tests/contract tests/interface

.DEFAULT_GOAL := help
.PHONY: help demo flower test test-slow test-oldest mutants lint format wheel docs figures benchmarks clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

flower: $(VENV)/.installed ## Run a server and three hospitals as processes of this machine (Flower)
	@$(BIN)/python examples/flower/run_locally.py

demo: $(VENV)/.installed ## Take the tour: plan, fit, report, and accuracy against epsilon
	@$(BIN)/python examples/quickstart.py

# Two workers on two cores: threads of linear algebra would only get in their way.
test test-slow test-oldest mutants: export OMP_NUM_THREADS = 1

test: $(VENV)/.installed ## Run the tests and doctests, without the slow ones
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not mutant"

test-slow: $(VENV)/.installed ## Run the slow tests: attacks on the guarantees, large statistics
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m slow

mutants: $(VENV)/.installed ## Plant every known bug, and fail if the tests do not find one
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m mutant tests/bugs

test-oldest: $(OLDEST)/.installed ## Run the contract and interface suites on the oldest scikit-learn, numpy and scipy
	@$(OLDEST)/bin/python -m pytest -q -n 2 --dist worksteal -m "not slow and not mutant" $(OLDEST_TESTS)

lint: $(VENV)/.installed ## Check style, format, types and the import rules of the packages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/.installed ## Format the code and repair what can be repaired
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

wheel: ## Build the wheel, and use it in an empty environment without extras
	@rm -rf dist build
	@$(PYTHON) $(PIP_INSTALL:install=wheel) --no-deps --wheel-dir dist .
	@$(PYTHON) -m venv build/empty
	@build/empty/bin/python $(PIP_INSTALL) dist/*.whl
	@build/empty/bin/python -m pip check
	@cd build && empty/bin/python ../.ci/use_the_wheel.py

docs: $(VENV)/.installed ## Build the documentation into docs/_build/html; warnings and broken links are errors
	@rm -rf docs/_build docs/generated docs/auto_examples
	@MPLBACKEND=Agg $(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@$(BIN)/python docs/check_links.py docs/_build/html > docs/_build/external_links.txt
	@echo "Built docs/_build/html/index.html"

figures: $(VENV)/.data ## Draw the figures of the papers and write docs/figures.rst (at most 20 minutes)
	@cd benchmarks && ../$(BIN)/python -m figures

benchmarks: $(VENV)/.data $(PEER)/.installed ## Run every benchmark, the long ones at a small size
	@$(BIN)/python benchmarks/iteration_cost.py
	@$(BIN)/python benchmarks/accuracy.py --quick
	@$(BIN)/python benchmarks/consistency.py --quick
	@$(BIN)/python benchmarks/unseen_data.py --half development --data pima hitters --splits 2
	@$(BIN)/python benchmarks/federated_scaling.py --quick
	@$(BIN)/python benchmarks/federated_tradeoff.py --quick
	@$(BIN)/python benchmarks/decentralized_scaling.py --quick
	@$(BIN)/python benchmarks/graph_absences.py --quick
	@$(BIN)/python benchmarks/large_data.py --quick
	@$(BIN)/python benchmarks/secret_sharing_cost.py --quick
	@$(BIN)/python benchmarks/private_search.py --quick
	@$(BIN)/python benchmarks/audit_cost.py --quick
	@$(BIN)/python benchmarks/streaming.py --quick
	@$(BIN)/python benchmarks/personalized_scaling.py --quick
	@cd benchmarks && ../$(BIN)/python -m figures --quick
	@$(PEER)/bin/python benchmarks/private_learners.py --quick
	@$(PEER)/bin/python benchmarks/audit_third_party.py --quick

clean: ## Remove what the other targets made
	@rm -rf $(VENV) $(OLDEST) $(PEER) build dist *.egg-info docs/_build docs/generated docs/auto_examples
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@rm -rf examples/output benchmarks/output
	@find skdpadmm tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Got $(PYTHON) = $$($(PYTHON) --version 2>&1), expected Python >= 3.11." \
	       "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP_INSTALL) --editable '.[dev]'
	@touch $@

# Data sets in wheels, from which no code is imported: benchmarks/_data.py has the line.
$(VENV)/.data: $(VENV)/.installed benchmarks/_data.py
	@$(BIN)/python -m $$(sed -n 's/^INSTALL = "\(.*\)".*/\1/p' benchmarks/_data.py) --quiet
	@touch $@

$(OLDEST)/.installed: pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "Got $(PYTHON) = $$($(PYTHON) --version 2>&1), expected Python 3.11 to 3.13, for which" \
	       "scikit-learn 1.6.1 exists. Name one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(OLDEST) ..."
	@$(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/python $(PIP_INSTALL) $(OLDEST_VERSIONS) --editable '.[test]'
	@touch $@

# diffprivlib runs on scikit-learn 1.6 and 1.7.
$(PEER)/.installed: pyproject.toml Makefile
	@echo "Setting up $(PEER) ..."
	@$(PYTHON) -m venv $(PEER)
	@$(PEER)/bin/python $(PIP_INSTALL) --editable '.[accounting,plot]' 'scikit-learn<1.8' pandas
	@$(PEER)/bin/python $(PIP_INSTALL) --no-deps diffprivlib==0.6.6
	@touch $@
