#!/bin/sh
# Make or refresh .venv from requirements.lock. Called by the Makefile when the lock or pyproject.toml changed.
#   TORCH_INDEX   take PyTorch from this index, without CUDA's libraries, instead of the locked CUDA build
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "DistTrain needs Python 3.11 or newer; $("$python" --version 2>&1) was found. Name another one: make PYTHON=python3.12 ..." >&2
    exit 1
}

fetch_uv() {
    # Debian and Ubuntu ship venv apart from Python.
    if ! "$python" -m venv .venv/uv 2>/dev/null; then
        # Nobody is asked for root's rights; who has them, in a container most often, has them used.
        [ "$(id -u)" = 0 ] && echo "Python's venv module is missing: installing python3-venv" >&2 &&
            apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null || {
            echo "Python's venv module is missing: install it (sudo apt-get install python3-venv), then call make again." >&2
            exit 1
        }
        "$python" -m venv .venv/uv
    fi
    .venv/uv/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement scripts/uv.lock
    UV=$PWD/.venv/uv/bin/uv
}

UV=$(command -v uv || true)
[ -x .venv/bin/python ] || { [ -n "$UV" ] && "$UV" venv --quiet --allow-existing --python "$python" .venv; } || true
[ -n "$UV" ] || fetch_uv
[ -x .venv/bin/python ] || "$UV" venv --quiet --allow-existing --python "$python" .venv

# Every process of a job imports PyTorch: without compiled byte code each would compile it again where
# nothing may write beside the packages.
export VIRTUAL_ENV="$PWD/.venv"

# Nothing is built: a source package would choose by itself what it is built with.
install() {
    "$UV" pip install --quiet --compile-bytecode --no-deps --only-binary :all: "$@"
}

if [ -n "${TORCH_INDEX:-}" ]; then
    echo "installing the locked versions into .venv, with PyTorch from $TORCH_INDEX" >&2
    # First, as it is what fails where that index cannot be reached.
    install --index-url "$TORCH_INDEX" "$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements.lock)" || {
        echo "PyTorch's build cannot be had from $TORCH_INDEX: name a mirror of it by TORCH_INDEX=URL, or call make with neither" \
            "TORCH_INDEX nor TORCH_BACKEND for the CUDA build of the package index." >&2
        exit 1
    }
    # An entry begins at the left margin; its hashes are indented. The CPU build has other hashes, which only its
    # own index knows, and needs none of the CUDA libraries: everything else is checked.
    awk '/^[^ ]/ { keep = !/^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==/ } keep' requirements.lock >.venv/without-torch.lock
    install --require-hashes --requirement .venv/without-torch.lock
else
    echo "installing the locked packages into .venv (PyTorch's CUDA build takes about 5 GB)" >&2
    "$UV" pip sync --quiet --compile-bytecode --require-hashes --only-binary :all: requirements.lock
fi
"$UV" pip install --quiet --no-deps --no-build-isolation --editable .
touch .venv/ready
