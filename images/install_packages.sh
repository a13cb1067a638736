#!/bin/sh
# Make the virtual environment /opt/disttrain from the lock in it: no pip, no cache, byte code compiled.
# Runs while an image is built.
#   TORCH_INDEX   take the locked version of PyTorch from this index, without CUDA's libraries
set -eu
umask 022
home=/opt/disttrain
lock=$home/requirements.lock
python=$home/bin/python
tools=/tmp/tools

# Quiet about being root: nobody else is there while an image is built.
install() {
    "$tools/bin/pip" --python "$python" install --quiet --no-cache-dir --no-compile --no-deps --only-binary :all: \
        --disable-pip-version-check --root-user-action=ignore "$@"
}

# A lock's entry begins at the left margin; its hashes and comments are indented.
entries_without_torch() {
    awk '/^[^ ]/ { keep = !/^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==/ } keep' "$lock"
}

# pip comes from outside of the environment, so that nothing of it stays there.
python3 -m venv "$tools"
python3 -m venv --without-pip "$home"
if [ -n "${TORCH_INDEX:-}" ]; then
    entries_without_torch >/tmp/rest.lock
    install --require-hashes --requirement /tmp/rest.lock
    rm /tmp/rest.lock
    # The lock's hashes are those of another build: the index itself vouches for this one.
    install --index-url "$TORCH_INDEX" "$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' "$lock")"
else
    install --require-hashes --requirement "$lock"
fi

# What changes with every commit lies beside the packages, in a layer of its own.
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo /opt/code >"$packages/disttrain-code.pth"
# By hash and unchecked: layers need not keep the time stamps that byte code is compared with.
# Some packages carry files for other versions of Python, which do not compile.
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$packages" >/dev/null || true
rm -r "$tools" "$home/install_packages.sh"
