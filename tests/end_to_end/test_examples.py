"""Every file of the examples, applied as it is; those with data here leave a model."""

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from safetensors.torch import load
from torch import Tensor

from builders import helm, product_images
from builders.job_view import JobView, Status
from builders.volume_reader import VolumeReader
from cluster import Kubectl, images, namespaces
from cluster.hooks import Hooks

pytestmark = pytest.mark.landing

EXAMPLES: Final = product_images.REPOSITORY / "examples"
FILES: Final = {
    yaml.safe_load(path.read_text())["metadata"]["name"]: path
    for path in EXAMPLES.glob("*/job*.yaml")
}
ACCURACIES: Final = {
    "speech-sandblaster": 0.5,
    "softmax-regression": 0.93,
    "softmax-regression-small": 0.9,
    "cifar10-small": 1.5 / 10,
    "speech-small": 1.5 / 30,
    "digits-small": 1.5 / 10,
    "digits-local-steps": 0.9,
    "language-small": 1.5 * 0.152,
    "image-local-small": 1.5 / 10,
}
"""What they reach at least, where it differs from run to run: more than guessing does."""
ERRORS: Final = {"autoencoder-small": {"squared_error_1": 0.35, "squared_error_2": 0.7}}
"""What they have at most at their end; nothing reconstructed is 0.45 and 0.96."""
LARGE: Final = {"speech", "cifar10"}
"""They want data that somebody has to fetch, and hours."""
ELSEWHERE: Final = {"digits"}
"""What the README does has a test of its own."""
AS_THE_SMALL_ONE: Final = {
    "image-local",
    "autoencoder",
    "language",
    "language-local-steps",
    "language-lora",
    "language-stream",
}
"""They take minutes, have no accuracy, or want the model of another."""
NO_VOLUMES: Final = {"storageClassName": "nobody-has-this"}
CODE: Final = {"digits-code": "digits", "softmax-regression-code": "softmax_regression"}
"""ConfigMaps that the manifests name, and the tasks in them."""
RELEASE: Final = "disttrain"
IMAGE: Final = "disttrain-examples"
TAG: Final = f"{product_images.PREFIX}{IMAGE}:{product_images.VERSION}"
LIMIT: Final = timedelta(minutes=8)
"""Jobs of five processes train on two cores side by side."""

# A derived image, as docs/kubernetes.md has it for tasks that a ConfigMap cannot hold.
CONTAINERFILE: Final = f"""
FROM {product_images.RUNTIME}
COPY cifar10/*.py speech/*.py language/*.py image-local/*.py autoencoder/*.py /task/
COPY data /data
"""


@pytest.fixture(scope="module")
def place(
    kubectl: Kubectl,
    image_tools: Hooks,
    operator_image: str,
    runtime_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kubectl]:
    """A namespace whose operator runs jobs of the derived image, with the ConfigMaps."""
    image = derived(tmp_path_factory.mktemp("examples"))
    product_images.build_and_load(image_tools, image)
    made = namespaces.make(kubectl, f"examples-{os.urandom(3).hex()}")
    values = {**helm.only_in(made), "runtimeImage": {"repository": IMAGE}}
    helm.upgrade(made, RELEASE, values)
    for name, task in CODE.items():
        made.run("create", "configmap", name, f"--from-file={EXAMPLES / task / task}.py")
    yield made
    made.run("delete", "disttrainjobs", "--all", "--wait=false")
    helm.uninstall(made, RELEASE)
    namespaces.remove(kubectl, made.namespace)


def test_no_example_is_forgotten() -> None:
    assert set(FILES) == {*ACCURACIES, *ERRORS} | LARGE | ELSEWHERE | AS_THE_SMALL_ONE


@pytest.mark.nightly
def test_examples_train_side_by_side_and_leave_a_model(place: Kubectl) -> None:
    jobs = [JobView(place, name) for name in (*ACCURACIES, *ERRORS)]
    for at, job in enumerate(jobs):
        # Each uses both cores: more of them side by side only take longer.
        for former in jobs[: max(0, at - 1)]:
            former.wait_until(partial(has_ended, former), "there is room", LIMIT)
        place.run("apply", "-f", FILES[job.name])
        job.wait_until(partial(has_begun, job), "it begins", LIMIT)

    for job in jobs:
        job.wait_until(partial(has_ended, job), "it ends", LIMIT)
        status = job.status()
        assert job.condition("Complete").get("status") == "True", status
        assert_it_has_learned(job.name, status["training"]["metrics"])
        assert sum(tensor.numel() for tensor in trained(job).values()) > 0
        if "sandblaster" in manifest(job)["spec"]["strategy"]:
            assert_the_batch_method_is_told(job, status)


def assert_it_has_learned(name: str, measured: Mapping[str, float]) -> None:
    if name in ACCURACIES:
        assert measured["accuracy"] > ACCURACIES[name]
    for error, most in ERRORS.get(name, {}).items():
        assert measured[error] < most


def assert_the_batch_method_is_told(job: JobView, status: Status) -> None:
    """Its section of the status, the row that kubectl shows, and why it ended."""
    limit = manifest(job)["spec"]["stop"]["iterations"]
    warm_start = manifest(job)["spec"]["strategy"]["sandblaster"].get("warmStart")
    section, why = status["sandblaster"], job.condition("Complete")["reason"]
    assert section["stage"] == "done"
    assert section["iteration"] == limit if why == "Iterations" else section["end"], section
    assert section["iteration"] < section["evaluations"] <= 1.5 * section["iteration"]
    assert section["objective"] == status["training"]["loss"] < 1
    assert 0 < section["gradientNorm"] < 1
    assert section["groupsDone"] == section["groups"] > 0
    assert status["data"]["portionsDone"] > 0
    if warm_start is not None:
        by_the_method = status["training"]["samples"] - warm_start["samples"]
        assert by_the_method % section["evaluations"] == 0 < by_the_method

    head, row = printed(job)
    assert head[:7] == ["NAME", "PHASE", "STRATEGY", "SHARDS", "REPLICAS", "PROGRESS", "MEASURE"]
    replicas = str(manifest(job)["spec"]["replicas"]["count"])
    assert row[:7] == [job.name, "Complete", "sandblaster", "2", replicas, "100", "accuracy"]


@pytest.mark.parametrize("name", sorted(LARGE))
def test_large_examples_become_objects_that_wait_for_a_volume(place: Kubectl, name: str) -> None:
    job = JobView(place, name)
    waiting = manifest(job)
    waiting["spec"].setdefault("checkpoint", {})["volume"] = {"size": "1Mi", **NO_VOLUMES}
    place.apply(waiting)

    job.wait_for_condition("VolumeUnbound")
    wanted = {f"statefulset.apps/{name}-shard", f"replicaset.apps/{name}-replica"}
    assert wanted | {f"job.batch/{name}-coordinator"} <= set(job.leftovers())
    job.delete()
    job.wait_until(lambda: job.leftovers() == [], "all but the claim is gone")


def has_begun(job: JobView) -> bool:
    return job.status().get("phase") in {"Running", "Complete", "Failed"}


def has_ended(job: JobView) -> bool:
    return job.status().get("phase") in {"Complete", "Failed"}


def manifest(job: JobView) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILES[job.name].read_text())
    return found


def printed(job: JobView) -> tuple[list[str], list[str]]:
    """What `kubectl get dtj` prints: the head, and the job's row."""
    head, row = job.kubectl.run("get", "dtj", job.name).splitlines()
    return head.split(), row.split()


def trained(job: JobView) -> dict[str, Tensor]:
    """The model on the job's volume."""
    volume = VolumeReader(job.kubectl, f"{job.name}-checkpoints")
    volume.start()
    path = f"{job.name}-{job.get()['metadata']['uid']}/model.safetensors"
    assert path in volume.files()
    return load(volume.content(path))


def derived(folder: Path) -> images.Recipe:
    """The runtime image with the examples' code and data, where they look for it."""
    file = folder / "Containerfile"
    file.write_text(CONTAINERFILE)
    return images.Recipe(containerfile=file, context=EXAMPLES, tag=TAG)
