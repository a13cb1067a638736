#!/bin/sh
# What the images hold, as CycloneDX. Needs uv. Called by the Makefile and a test.
#   scripts/sbom.sh FOLDER   where operator.cdx.json and runtime.cdx.json go
set -eu
cd "$(dirname "$0")/.."
folder=$1

mkdir -p "$folder"
for image in operator runtime; do
    uv tool run --from cyclonedx-bom==7.1.0 cyclonedx-py requirements "images/$image/requirements.lock" -o "$folder/$image.cdx.json"
done
