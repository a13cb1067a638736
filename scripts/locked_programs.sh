#!/bin/sh
# Programs that are no part of .venv, in .venv/NAME with the versions and hashes of scripts/NAME.lock. Needs uv.
#   scripts/locked_programs.sh NAME
set -eu
cd "$(dirname "$0")/.."
[ -x ".venv/$1/bin/python" ] || uv venv --quiet --allow-existing --python .venv/bin/python ".venv/$1"
VIRTUAL_ENV=$PWD/.venv/$1 uv pip sync --quiet --require-hashes --only-binary :all: "scripts/$1.lock"
