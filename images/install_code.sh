#!/bin/sh
# Install DistTrain itself, from its source in folder $1, into folder $2. Runs while an image is built.
set -eu
umask 022
pip="/build/tools/bin/pip --disable-pip-version-check"
$pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /build/wheels "$1"
$pip install --quiet --no-deps --no-compile --root-user-action=ignore --target "$2" /build/wheels/disttrain-*.whl
# The commands start with the interpreter that has the packages, not with the one that built them.
sed -i '1s|.*|#!/opt/disttrain/bin/python|' "$2"/bin/*
python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash "$2"
