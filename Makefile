# `make help` lists the targets. Every target makes and reuses .venv; nothing has to be prepared.
PYTHON ?= python3
BIN := .venv/bin
CODE := runtime operator development tests examples
ifeq ($(TORCH_BACKEND),cpu)
# An empty TORCH_INDEX, as an outer make may export it, names no index.
TORCH_INDEX := $(or $(TORCH_INDEX),https://download.pytorch.org/whl/cpu)
endif

.DEFAULT_GOAL := help
.PHONY: help demo quick test test-all nightly chosen-tests test-cluster test-fast mutants check bench bench-quick generate format lock images kueue-image sbom scan clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  (TORCH_BACKEND=cpu takes PyTorch's CPU build, TORCH_INDEX=URL from a mirror; PYTHON=... another interpreter)"

.venv/ready: requirements.lock pyproject.toml scripts/environment.sh
	@PYTHON='$(PYTHON)' TORCH_INDEX='$(TORCH_INDEX)' scripts/environment.sh

demo: .venv/ready ## train the digits example: 2 shards, 3 replicas, one command
	$(BIN)/disttrain run examples/digits/job.yaml

# own: one is built (once, 15 minutes) and started; existing: the one that KUBECONFIG names.
CLUSTER ?= own
# Most of a test is waiting.
CLUSTER_WORKERS ?= 3
# Of pods' certificates: with 60, the shortest, all pods renew theirs. Else the operator's own, a day.
CERTIFICATE_SECONDS ?=
export DISTTRAIN_CERTIFICATE_SECONDS = $(CERTIFICATE_SECONDS)
BY_FILES = --dist loadscope --no-loadscope-reorder
CLUSTER_REPORT = -q --durations=20 --cluster=$(CLUSTER) $(CLUSTER_OPTIONS)
# What a target leaves to the longer ones, by the marks of tests.
BEFORE_A_PUSH = not landing and not nightly
BEFORE_LANDING = not nightly
CHOSEN ?= $(BEFORE_A_PUSH)
LEFT_OUT = $(BIN)/python tests/left_out.py $(CLUSTER)

quick: .venv/ready ## in a minute: style, types and the unit tests of the folders that changed
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy runtime/disttrain operator/disttrain_operator tests
	@changed=$$($(BIN)/python tests/changed.py) && { [ -z "$$changed" ] || $(BIN)/pytest $$changed -n 2 -q -x --failed-first; }

test: .venv/ready ## before a push, a quarter of an hour: all but what its last line names
	$(MAKE) chosen-tests
	@$(LEFT_OUT) "tests marked landing (make test-all), tests marked nightly, benchmarks, mutants (make nightly)"

test-all: .venv/ready ## before landing, an hour: all tests but the nightly ones
	$(MAKE) chosen-tests CHOSEN="$(BEFORE_LANDING)"
	@$(LEFT_OUT) "tests marked nightly, benchmarks, mutants (make nightly)"

nightly: .venv/ready ## some hours: what is too long for a landing: more seeds, mutants, benchmarks, scans, the test cluster's own tests
	$(BIN)/pytest tests/simulation -n 2 -q -m nightly
	$(BIN)/pytest tests/integration -n 2 --dist loadfile -q -m nightly
	$(MAKE) test-cluster CHOSEN=nightly
	$(MAKE) mutants

chosen-tests:
	$(BIN)/pytest tests/unit tests/contract tests/simulation -n 2 -q -m "$(CHOSEN)"
	$(BIN)/pytest tests/integration tests/gpu -n 2 --dist loadfile -q -m "$(CHOSEN)"
	$(MAKE) test-cluster CHOSEN="$(CHOSEN)"

test-cluster: .venv/ready ## those on a real Kubernetes: as root on Linux one is started, else it says why not
	cd tests && ../$(BIN)/python -m cluster $(if $(filter own,$(CLUSTER)),prepare,build)
	$(BIN)/pytest tests/end_to_end -m "($(CHOSEN)) and not alone" -n $(CLUSTER_WORKERS) $(BY_FILES) $(CLUSTER_REPORT)
	@# 5: none is selected, as before a push. Everything else that is not 0 is a failure.
	$(BIN)/pytest tests/end_to_end -m "($(CHOSEN)) and alone" $(CLUSTER_REPORT) || [ $$? -eq 5 ]

test-fast: .venv/ready ## two minutes: the tests that start no processes of a job
	$(BIN)/pytest tests/unit tests/contract -n 2 -q

mutants: .venv/ready ## ten minutes: remove each guard of tests/mutants/table.py and see a test fail
	cd tests && ../$(BIN)/python -m mutants

check: .venv/ready ## style, types, layers, generated files
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy runtime/disttrain operator/disttrain_operator development/disttrain_generators development/disttrain_monitoring tests examples
	PYTHONPATH=development $(BIN)/lint-imports
	PYTHONPATH=development $(BIN)/python -m disttrain_generators.generated_files . --check

format: .venv/ready ## apply the style
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

generate: .venv/ready ## rewrite what is made from the manifest's types, and dashboards, alerts and the list of metrics
	PYTHONPATH=development $(BIN)/python -m disttrain_generators.generated_files .

bench: .venv/ready ## every benchmark, one JSON object each (some hours on 2 cores: replicas and operator_scale are the longest)
	@for file in tests/benchmarks/*.py; do echo "== $$file" >&2; $(BIN)/python $$file || exit 1; done

bench-quick: .venv/ready ## every benchmark in a small form: that they run, not how fast
	@for file in tests/benchmarks/*.py; do echo "== $$file" >&2; $(BIN)/python $$file --quick || exit 1; done

# uv may be in PATH, or where scripts/environment.sh put it. No host's name gets into a lock.
UV_PATH := PATH="$$PWD/.venv/uv/bin:$$PATH"
UV := $(UV_PATH) UV_CUSTOM_COMPILE_COMMAND="make lock" uv
PIN := $(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11

lock: .venv/ready ## pin the newest versions that pyproject.toml allows, for images too
	$(PIN) --upgrade --all-extras -o requirements.lock pyproject.toml
	$(PIN) --constraint requirements.lock --extra examples --extra object-stores pyproject.toml -o images/runtime/requirements.lock
	$(PIN) --constraint requirements.lock images/operator/requirements.in -o images/operator/requirements.lock
	$(PIN) --constraint requirements.lock images/build.in -o images/build.lock
	for name in uv sbom scan; do $(PIN) --upgrade scripts/$$name.in -o scripts/$$name.lock || exit 1; done

IMAGE_BUILDER ?= $(firstword $(notdir $(foreach tool,buildah podman docker,$(shell command -v $(tool)))))
IMAGE_PREFIX ?=
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
REVISION = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# As flags: some builders take a cached layer although an argument in its label has changed.
IMAGE_ARGUMENTS = $(IMAGE_FLAGS) --label org.opencontainers.image.version=$(VERSION) --label org.opencontainers.image.revision=$(REVISION)
TORCH_ARGUMENTS = $(if $(TORCH_INDEX),--build-arg TORCH_INDEX=$(TORCH_INDEX))

images: ## images of operator and runtime, by buildah, podman or docker (IMAGE_PREFIX=registry/path/)
	$(IMAGE_BUILDER) build $(IMAGE_ARGUMENTS) --file images/operator/Containerfile --tag $(IMAGE_PREFIX)disttrain-operator:$(VERSION) .
	$(IMAGE_BUILDER) build $(IMAGE_ARGUMENTS) $(TORCH_ARGUMENTS) --file images/runtime/Containerfile --tag $(IMAGE_PREFIX)disttrain-runtime:$(VERSION) .

kueue-image: ## image that lets Kueue decide when jobs run (IMAGE_PREFIX=registry/path/); needs Go 1.24 or newer
	cd kueue && CGO_ENABLED=0 go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o ../dist/kueue/disttrain-kueue .
	$(IMAGE_BUILDER) build $(IMAGE_ARGUMENTS) --file images/kueue/Containerfile --tag $(IMAGE_PREFIX)disttrain-kueue:$(VERSION) dist/kueue

sbom: .venv/ready ## the images' Python packages, by their locks, as CycloneDX: dist/operator.cdx.json, dist/runtime.cdx.json
	$(UV_PATH) scripts/sbom.sh dist

scan: .venv/ready ## checkov's rules on the chart (needs helm) and the images; exceptions stand there with reasons
	$(UV_PATH) scripts/scan.sh dist/scan

clean: ## remove .venv and what tools left
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
