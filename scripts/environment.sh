#!/bin/sh
# Make or refresh .venv from requirements.lock. Called by the Makefile when the lock or pyproject.toml changed.
#   TORCH_BACKEND=cpu   take PyTorch's CPU build from PyTorch's own index instead of the locked CUDA build
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "DistTrain needs Python 3.11 or newer; $("$python" --version 2>&1) was found. Name another one: make PYTHON=python3.12 ..." >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else return 1; fi
}

fetch_uv() {
    # Debian and Ubuntu ship venv apart from Python.
    if ! "$python" -m venv .venv/uv 2>/dev/null; then
        echo "Python's venv module is missing: installing python3-venv" >&2
        as_root apt-get update -qq && as_root apt-get install -y -qq python3-venv >/dev/null || {
            echo "Install the package python3-venv (apt-get install python3-venv), then call make again." >&2
            exit 1
        }
        "$python" -m venv .venv/uv
    fi
    .venv/uv/bin/pip install --quiet --disable-pip-version-check uv
    UV=$PWD/.venv/uv/bin/uv
}

UV=$(command -v uv || true)
[ -x .venv/bin/python ] || { [ -n "$UV" ] && "$UV" venv --quiet --allow-existing --python "$python" .venv; } || true
[ -n "$UV" ] || fetch_uv
[ -x .venv/bin/python ] || "$UV" venv --quiet --allow-existing --python "$python" .venv

# Every process of a job imports PyTorch: without compiled byte code each would compile it again where
# nothing may write beside the packages.
export VIRTUAL_ENV="$PWD/.venv"
if [ "${TORCH_BACKEND:-}" = cpu ]; then
    echo "installing the locked versions into .venv, with PyTorch's CPU build from download.pytorch.org" >&2
    # The CPU wheels have other hashes and need none of the CUDA libraries.
    sed -e 's/ *\\$//' -e '/^ *--hash/d' -e '/^nvidia-/d' -e '/^cuda-/d' -e '/^triton/d' requirements.lock >.venv/constraints.txt
    "$UV" pip install --quiet --compile-bytecode --torch-backend cpu --constraint .venv/constraints.txt --editable '.[cluster,examples,development,operator]'
else
    echo "installing the locked packages into .venv (PyTorch's CUDA build takes about 5 GB)" >&2
    "$UV" pip sync --quiet --compile-bytecode requirements.lock
    "$UV" pip install --quiet --no-deps --no-build-isolation --editable .
fi
touch .venv/ready
