"""Container images without a registry: a base made from Debian packages, the rest by buildah.

buildah keeps what it built in the cache, step by step: a build with nothing new takes seconds.
"""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from cluster import commands, layout
from cluster.errors import CommandFailed
from cluster.lock import Lock

SUITE: Final = "bookworm"
PACKAGES: Final = ("ca-certificates", "python3", "python3-venv")
BASE_CONTAINERFILE: Final = 'FROM scratch\nADD base.tar /\nCMD ["python3"]\n'
BUILD_LIMIT: Final = timedelta(minutes=30)
"""PyTorch with its CUDA libraries takes minutes to install and minutes to commit."""
AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
"""Whom this machine trusts, a proxy of its own perhaps: builds must trust the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an image is built from."""

    containerfile: Path
    context: Path
    """The folder that COPY takes files from."""
    tag: str
    """With a host's name and a version, for example `test.disttrain.dev/operator:1`."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Values of the Containerfile's ARGs."""
    folders: Mapping[Path, str] = field(default_factory=dict)
    """Folders of this machine and where the build sees them, to be read only."""


def base() -> str:
    """Return the name of a small Debian image with Python 3.11, made at the first call."""
    contents = hashlib.sha256(f"{SUITE} {PACKAGES} {BASE_CONTAINERFILE}".encode()).hexdigest()
    tag = f"test.disttrain.dev/base:{contents[:16]}"
    with Lock.acquire(BUILD_LIMIT, layout.images_lock_file()):
        if identity(tag) is None:
            _make_base(tag)
    return tag


def build(recipe: Recipe) -> str:
    """Build the image and return its id, which is another one only if something changed."""
    mounted = {AUTHORITIES: AUTHORITIES, **recipe.folders}
    volumes = [f"--volume={source}:{target}:ro" for source, target in mounted.items()]
    arguments = [f"--build-arg={name}={value}" for name, value in recipe.arguments.items()]
    files = (f"--file={recipe.containerfile}", f"--tag={recipe.tag}", recipe.context)
    # What two processes want at once, the second one finds done.
    with Lock.acquire(BUILD_LIMIT, layout.images_lock_file()):
        return _build("--layers", *volumes, *arguments, *files)


def identity(tag: str) -> str | None:
    """Return the id of an image, None if it was not built."""
    ask = _buildah("inspect", "--type=image", "--format={{.FromImageID}}", tag)
    try:
        return commands.run(*ask).strip()
    except CommandFailed:
        return None


def archive(tag: str) -> Path:
    """Return the archive of an image that was built; it is written once for each build."""
    built = identity(tag)
    assert built is not None, f"{tag} was not built"
    # In buildah's words for archives a colon ends the path.
    folder = layout.cache() / "archives" / re.sub(r"[/:]", "-", tag)
    file = folder / f"{built}.tar"
    if not file.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Beside its final place, so that one that was cut short never counts as done.
        unfinished = file.with_suffix(".writing")
        push = _buildah("push", "--quiet", tag, f"docker-archive:{unfinished}:{tag}")
        commands.run(*push, limit=BUILD_LIMIT)
        unfinished.replace(file)
    return file


def _make_base(tag: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # No variant is smaller: Python needs none of what the others add.
        variant = ("--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}")
        files = folder / "base.tar"
        commands.run_patiently("mmdebstrap", *variant, SUITE, files, limit=BUILD_LIMIT)
        (folder / "Containerfile").write_text(BASE_CONTAINERFILE)
        _build(f"--tag={tag}", folder)


def _build(*arguments: str | Path) -> str:
    # The format whose image ids containerd keeps; chroot, as runc may not set limits everywhere.
    how = ("--quiet", "--format=docker", "--isolation=chroot")
    return commands.run_patiently(*_buildah("build", *how, *arguments), limit=BUILD_LIMIT).split()[
        -1
    ]


def _buildah(command: str, *arguments: str | Path) -> list[str | Path]:
    store = layout.cache() / "images"
    folders = (f"--root={store / 'store'}", f"--runroot={store / 'run'}")
    return ["buildah", *folders, "--storage-driver=overlay", command, *arguments]
