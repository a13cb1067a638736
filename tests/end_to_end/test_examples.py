"""The small examples as they are, applied side by side, train to the end and leave a model."""

import os
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from safetensors.torch import load_file

from builders import helm, product_images
from builders.job_view import JobView
from cluster import Cluster, Kubectl, images, layout, namespaces, volumes

EXAMPLES: Final = product_images.REPOSITORY / "examples"
SMALL: Final = sorted(EXAMPLES.glob("*/job-small.yaml"))
CHANCE: Final = {"digits-small": 0.1, "cifar10-small": 0.1, "speech-small": 1 / 30}
"""What guessing gets right; speech has ten digits of three states."""
RELEASE: Final = "disttrain"
IMAGE: Final = "disttrain-examples"
TAG: Final = f"{product_images.PREFIX}{IMAGE}:{product_images.VERSION}"
LIMIT: Final = timedelta(minutes=8)
"""Three jobs of five processes train on two cores side by side."""

# A derived image, as docs/kubernetes.md has it for tasks that a ConfigMap cannot hold.
CONTAINERFILE: Final = f"""
FROM {product_images.RUNTIME}
COPY digits/*.py cifar10/*.py speech/*.py /task/
COPY data /data
"""


def name_of(path: Path) -> str:
    manifest: dict[str, Any] = yaml.safe_load(path.read_text())
    name: str = manifest["metadata"]["name"]
    return name


@pytest.fixture(scope="module")
def place(
    own_cluster: Cluster,
    kubectl: Kubectl,
    operator_image: str,
    runtime_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kubectl]:
    """A namespace whose operator runs jobs of the derived image, and the ConfigMap for digits."""
    image = derived(tmp_path_factory.mktemp("examples"))
    product_images.build_and_load(own_cluster, image)
    made = namespaces.make(kubectl, f"examples-{os.urandom(3).hex()}")
    values = {**helm.only_in(made), "runtimeImage": {"repository": IMAGE}}
    helm.upgrade(made, RELEASE, values)
    made.run("create", "configmap", "digits-code", f"--from-file={EXAMPLES / 'digits/digits.py'}")
    yield made
    made.run("delete", "disttrainjobs", "--all", "--wait=false")
    helm.uninstall(made, RELEASE)
    namespaces.remove(kubectl, made.namespace)


@pytest.mark.timeout(700, func_only=True)
def test_the_small_ones_train_and_leave_a_model(place: Kubectl) -> None:
    names = [name_of(path) for path in SMALL]
    assert set(names) == set(CHANCE)
    for name, path in zip(names, SMALL, strict=True):
        claim = f"{place.namespace}/{name}-checkpoints"
        volumes.make(place, volume_of(place, name), claim=claim)
        place.run("apply", "-f", path)

    for name in names:
        job = JobView(place, name)
        job.wait_until(partial(has_ended, job), "it ends", LIMIT)
        status = job.status()
        assert job.condition("Complete").get("status") == "True", status
        assert status["training"]["metrics"]["accuracy"] > 1.5 * CHANCE[name]
        folder = (
            layout.volumes() / volume_of(place, name) / f"{name}-{job.get()['metadata']['uid']}"
        )
        model = load_file(folder / "model.safetensors")
        assert sum(tensor.numel() for tensor in model.values()) > 0


def has_ended(job: JobView) -> bool:
    return job.status().get("phase") in {"Complete", "Failed"}


def volume_of(place: Kubectl, name: str) -> str:
    return f"{place.namespace}-{name}"


def derived(folder: Path) -> images.Recipe:
    """The runtime image with the examples' code and data, where they look for it."""
    file = folder / "Containerfile"
    file.write_text(CONTAINERFILE)
    return images.Recipe(containerfile=file, context=EXAMPLES, tag=TAG)
