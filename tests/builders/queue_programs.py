"""Kueue, and what connects jobs with it: built once, from Go modules.

What to install of Kueue lies beside its sources.
"""

import hashlib
import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from builders import product_images
from cluster import Kubectl, commands, images, layout
from cluster.lock import Lock

SOURCE: Final = product_images.REPOSITORY / "kueue"
PACKAGES: Final = {
    "kueue": "sigs.k8s.io/kueue/cmd/kueue",
    "disttrain-kueue": ".",
}
MODULE: Final = "sigs.k8s.io/kueue"
FLAGS: Final = ("-mod=readonly", "-trimpath", "-buildvcs=false")
"""The same for tests, so that they find compiled what the programs need."""
LIMIT: Final = timedelta(minutes=20)
"""A cold build of both takes minutes on 2 idle cores."""


def image(name: str) -> images.Recipe:
    """Return how the image with one of the programs is built, by the Containerfile of our own."""
    return images.Recipe(
        containerfile=product_images.REPOSITORY / "images" / "kueue" / "Containerfile",
        context=_built(),
        tag=f"{product_images.PREFIX}{name}:{product_images.VERSION}",
        arguments={"PROGRAM": name},
    )


def run_own_tests() -> None:
    """Run the tests of the program of our own; raise CommandFailed unless they pass."""
    _go("test", *FLAGS, ".")


def installation(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return what Kueue's authors say is to be installed of it."""
    version = _go("list", "-m", "-f", "{{.Version}}", MODULE).strip()
    told = json.loads(_go("mod", "download", "-json", f"{MODULE}@{version}"))
    printed = kubectl.run("kustomize", Path(told["Dir"]) / "config" / "default")
    return [found for found in yaml.safe_load_all(printed) if found]


def _built() -> Path:
    digest = hashlib.sha256()
    for file in sorted([*SOURCE.glob("*.go"), *SOURCE.glob("go.*")]):
        digest.update(file.read_bytes())
    folder = layout.cache() / f"queues-{digest.hexdigest()[:16]}"
    # What two processes want at once, the second one finds done.
    with Lock.acquire(LIMIT, layout.images_lock_file()):
        if not folder.exists():
            _build(folder)
    return folder


def _build(folder: Path) -> None:
    # Beside its final place, so that a build that was cut short never counts as done.
    unfinished = folder.with_suffix(".building")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for name, package in PACKAGES.items():
        _go("build", *FLAGS, "-ldflags", "-s -w", "-o", unfinished / name, package)
    unfinished.replace(folder)


def _go(*arguments: str | Path) -> str:
    # GOWORK: whatever workspace this machine has is not ours.
    variables = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    command = ("nice", "-n", "10", "go", *arguments)
    return commands.run_patiently(*command, folder=SOURCE, environment=variables, limit=LIMIT)
