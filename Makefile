# `make demo` sets everything up and shows the main job; `make test` sets everything up and passes the tests.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUN := $(VENV)/.run
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NODE := --machine epyc-9654-nps4 --config examples/kubelet.yaml
# Prints a command of podslice and runs it.
SHOW := show() { printf '\n$$ podslice %s\n' "$$*"; $(BIN)/python -m podslice "$$@"; }; show
# Without bytecode on disk every test worker and every podslice process compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

UNIT := not process and not conformance

.PHONY: help demo test quick test-process test-conformance stress-test lint check-proto bench replay judge predict e2e e2e-full lock man manifests docs dist image clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What podslice itself needs, without the tools of its developers: a few small packages, in seconds.
$(RUN): release/run.lock
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "podslice needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...")'
	@echo "Setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r release/run.lock
	@$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' | { read folder; echo "$(CURDIR)/src" > "$$folder/podslice-checkout.pth"; }
	@touch $@

$(READY): pyproject.toml requirements.lock $(RUN)
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

demo: $(RUN) ## Set up, then explain a refused pod, compare policies, and show where pods land
	@$(SHOW) explain examples/pods.yaml $(NODE) --only-refused || test $$? -eq 1
	@$(SHOW) whatif examples/pods.yaml $(NODE) --recommend || test $$? -eq 1
	@$(SHOW) admit examples/pods.yaml $(NODE) || test $$? -eq 1

test: $(READY) ## Set up, then run the unit tests: no test of them starts a process
	$(BIN)/python -m pytest -q -n auto -m '$(UNIT)'

quick: $(READY) ## Run the fast unit tests, in less than a minute
	$(BIN)/python -m pytest -q -n auto -m '$(UNIT) and not slow'

test-process: $(READY) ## Run the tests that start processes: podslice itself, openssl, groff; one more at once than there are cores
	$(BIN)/python -m pytest -q -n $$(( $$(nproc) + 1 )) -m 'process and not conformance'

test-conformance: $(READY) ## Run the tests that need Kubernetes' programs or the judge; they skip without
	$(BIN)/python -m pytest -q -n $$(( $$(nproc) + 1 )) -m conformance

stress-test: $(READY) ## Run all tests three times beside a load of four busy processes per core
	@set -e; pids=; \
	for _ in $$(seq $$((4 * $$(nproc)))); do (while :; do :; done) & pids="$$pids $$!"; done; \
	trap "kill $$pids" EXIT INT TERM; \
	for run in 1 2 3; do $(BIN)/python -m pytest -q -n auto; done

lint: $(READY) ## Format check, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m release.protos --check
	$(BIN)/python -m release.schemas --check

check-proto: $(READY) ## Compare the generated messages with their .proto files
	$(BIN)/python -m release.protos --check

bench: $(READY) ## Run the benchmarks
	$(BIN)/python -m benchmarks

replay: $(READY) ## Compare with all recorded decisions beside the checkout
	$(BIN)/podslice replay --check ../shared/vectors/*.jsonl.gz

judge: $(READY) ## Hunt for differences from v1.36.2's own managers: make judge HUNT="--seconds 600"
	$(BIN)/python -m tools.judge $(HUNT)

predict: $(READY) ## A real kubelet beside podslice, as root: make predict TRIALS="--configurations 30"
	$(BIN)/python -m tools.prediction $(TRIALS)

e2e: $(READY) ## The agent in a virtual machine with a real containerd: a short set on one machine
	$(BIN)/python -m e2e

e2e-full: $(READY) ## All scenarios on all machines; the table goes to docs/development/e2e-results.md
	$(BIN)/python -m e2e --full --results docs/development/e2e-results.md

lock: ## Renew requirements.lock (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url -c requirements.lock -o release/run.lock pyproject.toml
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --group dev --extra agent --extra fleet --extra claims --extra png -o requirements.lock pyproject.toml
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --extra agent --extra cluster -c requirements.lock -o deploy/container/requirements.lock pyproject.toml
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --extra docs -c requirements.lock -o release/docs.lock pyproject.toml

manifests: $(READY) ## Write deploy/manifests, what Helm makes of the chart (python -m e2e.clienttools)
	$(BIN)/python -m release.manifests

man: $(READY) ## Write the manual pages to man/man1
	$(BIN)/podslice man --out man/man1

docs: $(READY) ## Build the site of the documents into build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r release/docs.lock
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m release.site

recording: $(READY) ## Record podslice why in a terminal anew: docs/why.cast, docs/why.svg
	$(BIN)/python -m release.recording

dist: $(READY) ## Build wheel and sdist reproducibly into dist, try the wheel with every Python at hand
	$(BIN)/python -m release

image: $(READY) ## Build the agent's container image into dist (needs buildah): make image BASE=python:3.12-slim@sha256:...
	$(BIN)/python -m release.image $(if $(BASE),--base $(BASE))

clean: ## Remove what was set up
	rm -rf man dist $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
