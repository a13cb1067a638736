# `make help` lists the targets. Every target makes and reuses .venv; nothing has to be prepared.
PYTHON ?= python3
BIN := .venv/bin
CODE := runtime tests examples
export PYTHON TORCH_BACKEND

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast check bench bench-quick generate format lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  (TORCH_BACKEND=cpu takes PyTorch's CPU build; PYTHON=... another interpreter)"

.venv/ready: requirements.lock pyproject.toml scripts/environment.sh
	@scripts/environment.sh

demo: .venv/ready ## train the digits example: 2 shards, 3 replicas, one command
	$(BIN)/disttrain run examples/digits/job.yaml

test: .venv/ready ## all tests, with real processes, kills and examples
	$(BIN)/pytest tests/unit tests/contract tests/simulation -n 2 -q
	$(BIN)/pytest tests/integration tests/gpu -q

test-fast: .venv/ready ## the tests that start no processes of a job
	$(BIN)/pytest tests/unit tests/contract -n 2 -q

check: .venv/ready ## style, types, layers, generated files
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy runtime/disttrain tests examples
	$(BIN)/lint-imports
	$(BIN)/python -m disttrain.job.reference docs/reference --check

format: .venv/ready ## apply the style
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

generate: .venv/ready ## rewrite what is made from the manifest's types
	$(BIN)/python -m disttrain.job.reference docs/reference

bench: .venv/ready ## every benchmark, one JSON object each (about half an hour on 2 cores)
	@for file in tests/benchmarks/*.py; do echo "== $$file" >&2; $(BIN)/python $$file || exit 1; done

bench-quick: .venv/ready ## every benchmark in a small form: that they run, not how fast
	@for file in tests/benchmarks/*.py; do echo "== $$file" >&2; $(BIN)/python $$file --quick || exit 1; done

lock: .venv/ready ## pin the newest versions that pyproject.toml allows
	PATH="$$PWD/.venv/uv/bin:$$PATH" UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --universal --upgrade --generate-hashes \
		--no-emit-index-url --python-version 3.11 --all-extras -o requirements.lock pyproject.toml

clean: ## remove .venv and what tools left
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
