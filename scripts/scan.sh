#!/bin/sh
# checkov's rules on the chart and the images; exceptions stand there with their reasons. Needs helm and uv. Called by the Makefile and a test.
#   scripts/scan.sh FOLDER   where to put what is scanned
set -eu
cd "$(dirname "$0")/.."
folder=$1

for image in operator runtime kueue; do
    mkdir -p "$folder/$image"
    cp "images/$image/Containerfile" "$folder/$image/Dockerfile"
done
monitored=
for part in serviceMonitor podMonitor prometheusRule dashboards; do monitored="$monitored --set metrics.$part.enabled=true"; done
# shellcheck disable=SC2086
helm template disttrain charts/disttrain-operator --namespace disttrain-system --kube-version 1.34.0 $monitored --set kueue.enabled=true >"$folder/chart.yaml"
scripts/locked_programs.sh scan
.venv/scan/bin/checkov --skip-download --quiet --compact --directory "$folder" --framework kubernetes dockerfile
