# The few commands a developer needs. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.dev
SUB := $(MAKE) --no-print-directory
PYTEST := $(BIN)/pytest -n 2 --dist worksteal
# Tests that need a cluster, Helm or PyTorch, and those of the image and of these commands, which build wheels and run pytest.
NOT_UNIT := tests/e2e tests/deploy tests/tools tests/worker/test_torch.py
SECONDS ?= 600
define MAKE_VENV
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "maniple needs Python >= 3.11; $(PYTHON) is older: make install PYTHON=python3.12" >&2; exit 1; }
$(PYTHON) -m venv $(VENV)
endef

.PHONY: help install dev test unit properties lint types imports missing programs all-tests demo bench bench-cluster chaos compare stress cluster cluster-down crds manifests diagram lock clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(STAMP) ## make .venv and install maniple into it, with all its commands

# The versions are those that CI tests; the tools of developers are left out.
$(STAMP): pyproject.toml requirements.lock
	$(MAKE_VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[cluster]'
	@touch $(STAMP)

dev: $(DEV) ## the same with all that tests, linting and type-checking need

$(DEV): pyproject.toml requirements.lock
	$(MAKE_VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP) $(DEV)

test: ## install, lint, type-check, check the import rule, build a cluster's programs, run the tests; says how long each part took
	@tools/run_timed_steps.sh install "$(SUB) dev missing" lint "$(SUB) lint" types "$(SUB) types" \
	  imports "$(SUB) imports" programs "$(SUB) programs" tests "$(SUB) all-tests"

unit: $(DEV) ## the tests that need no cluster, with fewer random cases: at most 4 minutes; stops at the first failure
	$(PYTEST) --exitfirst --hypothesis-profile=quick $(addprefix --ignore=,$(NOT_UNIT))

properties: $(DEV) ## the property tests with fresh seeds, for SECONDS=600; prints the seed of what fails
	@$(BIN)/python -m tools.fresh_properties --seconds $(SECONDS) -- -n 2 --dist worksteal

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

imports: $(DEV)
	$(BIN)/lint-imports --no-cache

missing: $(DEV)
	@$(BIN)/python -m tools.cluster build --dry-run

programs: $(DEV)
	$(BIN)/python -m tools.cluster build --if-possible

all-tests: $(DEV)
	$(PYTEST)

demo: $(STAMP) ## plan the examples and print them as tables
	@$(BIN)/python tools/demo_examples.py

bench: $(DEV) ## run the benchmarks behind docs/performance.md: forty mixes, then single cases
	$(BIN)/python -m benchmarks.mixes
	$(BIN)/python -m benchmarks

cluster: $(STAMP) ## start a real Kubernetes with four simulated nodes on this machine, for trying things out
	@$(BIN)/python -m tools.cluster up --detach --nodes 4

cluster-down: $(STAMP) ## stop it and remove everything of it
	@$(BIN)/python -m tools.cluster down

bench-cluster: $(DEV) ## on a real API server: binds a second, beside a bare client and kube-scheduler; elastic jobs
	$(BIN)/python -m benchmarks.live_binds
	$(BIN)/python -m benchmarks.elastic_jobs
	$(BIN)/python -m benchmarks.notice_latency

chaos: $(DEV) ## five minutes of killing scheduler, API server and etcd while gangs come and go; then 200 elastic jobs
	PYTHONPATH=tests $(BIN)/python -m e2e.chaos --seconds 300 --seed 7
	MANIPLE_JOBS=200 $(BIN)/pytest tests/e2e/test_elastic.py -k many_jobs -n 0 -q

compare: $(DEV) ## 500 random clusters before the real kube-scheduler: does it find a node exactly when we do? SEED=1
	MANIPLE_RULE_CASES=500 MANIPLE_RULE_SEED=$(or $(SEED),1) $(BIN)/pytest tests/e2e/test_kube_scheduler_agrees.py -n 0 -q

stress: $(DEV) ## the tests on a machine that is busy with something else: finds those that count on an idle one
	tools/run_on_busy_machine.sh 2 $(PYTEST)

crds: $(STAMP) ## write deploy/crds/ from the types
	$(BIN)/maniple crds --write deploy/crds

manifests: $(DEV) crds ## write deploy/install.yaml and deploy/rbac.yaml from the Helm chart
	$(BIN)/python -m tools.write_manifests

diagram: $(DEV) ## write the transitions of an elastic job into its page
	$(BIN)/python -m tools.write_diagram

lock: ## renew requirements.lock from pyproject.toml
	$(PYTHON) tools/write_requirements_lock.py

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
