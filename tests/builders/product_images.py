"""The images that users build, built for the test cluster from this very tree.

The recipes are the users' own, with three arguments: a base made from Debian packages instead of a
public Python image, the certificates and the index of this machine, and a PyTorch without CUDA's
gigabytes (`torch_without_cuda`). PyTorch lies in a layer of its own, which is built again only
when the lock changes; a change of the code builds a thin layer.
"""

import os
import platform
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Final

from builders import torch_without_cuda
from cluster import busybox, images, layout
from cluster.hooks import Hooks
from cluster.lock import Lock

REPOSITORY: Final = Path(__file__).parents[2]
PREFIX: Final = "test.disttrain.dev/"
VERSION: Final = "0.1.0"
RUNTIME: Final = f"{PREFIX}disttrain-runtime:{VERSION}"
OPERATOR: Final = f"{PREFIX}disttrain-operator:{VERSION}"
PYTHON_OF_BASE: Final = (3, 11)
INDEX_IN_BUILD: Final = "/torch-index"
PACKING_LIMIT: Final = timedelta(minutes=20)


def build_and_load(hooks: Hooks, recipe: images.Recipe) -> str:
    """Build an image and give it to every node: its name."""
    images.build(recipe)
    # Archives are gigabytes: those who want the same one wait for each other.
    with Lock.acquire(PACKING_LIMIT, layout.images_lock_file()):
        hooks.load(images.archive(recipe.tag), recipe.tag)
    return recipe.tag


def load_small(hooks: Hooks) -> str:
    """Give every node the image of the pods that only pretend: its name."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "busybox.tar"
        busybox.write_archive(archive)
        hooks.load(archive, busybox.IMAGE)
    return busybox.IMAGE


def operator() -> images.Recipe:
    """Return how the operator's image is built here."""
    return _recipe("operator", OPERATOR)


def runtime() -> images.Recipe:
    """Return how the runtime's image is built here."""
    if sys.version_info[:2] != PYTHON_OF_BASE or platform.machine() not in _PACKABLE:
        # The installed PyTorch is of no use to the base's Python: 5 GB then, but it works.
        return _recipe("runtime", RUNTIME)
    # What two processes want at once, the second one finds done.
    with Lock.acquire(PACKING_LIMIT, layout.images_lock_file()):
        folders = {torch_without_cuda.index(): INDEX_IN_BUILD}
    return _recipe("runtime", RUNTIME, folders, TORCH_INDEX=f"file://{INDEX_IN_BUILD}")


_PACKABLE = torch_without_cuda.NO_DEVICE


def _recipe(
    name: str, tag: str, folders: dict[Path, str] | None = None, **arguments: str
) -> images.Recipe:
    index = os.environ.get("PIP_INDEX_URL")
    return images.Recipe(
        containerfile=REPOSITORY / "images" / name / "Containerfile",
        context=REPOSITORY,
        tag=tag,
        arguments={
            "BASE_IMAGE": images.base(),
            "PIP_CERT": str(images.AUTHORITIES),
            **({"PIP_INDEX_URL": index} if index else {}),
            **arguments,
        },
        folders=folders or {},
    )
