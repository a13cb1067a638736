#!/bin/sh
# The Python packages of the images, as CycloneDX: every entry of their locks, those for other platforms included. Not in it: the base
# image with its operating system (a scanner of images lists it) and the CPU build that takes PyTorch's place. Needs uv. Called by
# the Makefile and a test.
#   scripts/sbom.sh FOLDER   where operator.cdx.json and runtime.cdx.json go
set -eu
cd "$(dirname "$0")/.."
folder=$1

mkdir -p "$folder"
scripts/locked_programs.sh sbom
for image in operator runtime; do
    .venv/sbom/bin/cyclonedx-py requirements "images/$image/requirements.lock" -o "$folder/$image.cdx.json"
done
