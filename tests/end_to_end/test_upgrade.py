"""A job that trains while the operator, its chart and its definition are upgraded, and back."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders import helm, product_images
from builders.cluster_training import ClusterTraining
from cluster import Kubectl, images, namespaces
from cluster.hooks import Hooks
from disttrain.job import document
from disttrain_generators import crd

pytestmark = pytest.mark.nightly

RELEASE: Final = "disttrain"
NEXT: Final = "next"
# Other templates of all pods; byte code of the module before would still be found.
CONTAINERFILE: Final = f"""
FROM {product_images.OPERATOR}
USER 0
RUN file=$(find /opt/code -path '*/manifests/pod.py') \\
    && sed -i 's/^GRACE_SECONDS = 120$/GRACE_SECONDS = 60/' $file \\
    && grep -q '^GRACE_SECONDS = 60$' $file \\
    && find /opt/code -path '*/manifests/*' -name 'pod.*.pyc' -delete
USER 65532:65532
"""


@pytest.fixture
def chart_before(tmp_path: Path) -> Path:
    """A chart whose definition lacks a default that the next one has."""
    chart = tmp_path / "chart"
    shutil.copytree(helm.CHART, chart)
    definition = crd.definition()
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["seed"]["default"]
    text = document.write(definition).replace("{{", '{{ "{{" }}')
    (chart / "templates" / "crd.yaml").write_text(text)
    return chart


@pytest.fixture
def training(
    kubectl: Kubectl,
    hooks: Hooks,
    operator_image: str,
    runtime_image: str,
    chart_before: Path,
) -> Iterator[ClusterTraining]:
    """A job that trains, of an operator from the chart before."""
    place = namespaces.make(kubectl, f"upgrade-{os.urandom(3).hex()}")
    helm.upgrade(place, RELEASE, helm.only_in(place), chart_before)
    job = ClusterTraining(hooks, place)
    job.apply(step_seconds=1.0, stop={"epochs": 1000})
    job.train(0.03)
    yield job
    job.delete()
    # The definition belongs to the other tests, too.
    helm.upgrade(place, RELEASE, helm.only_in(place))
    helm.uninstall(place, RELEASE)
    namespaces.remove(kubectl, place.namespace)


@pytest.mark.alone
def test_upgrades_touch_nothing_that_runs_and_the_next_operator_looks_after_it(
    training: ClusterTraining, image_tools: Hooks, chart_before: Path, tmp_path: Path
) -> None:
    job, before = training, training.uids()
    assert len(before) == len(job.pods())
    assert "seed" not in job.get()["spec"]

    helm.upgrade(job.kubectl, RELEASE, another_version(job, image_tools, tmp_path))
    assert job.get()["spec"]["seed"] == 0
    trains_on(job)
    assert job.uids() == before
    assert_nothing_ails(job)

    job.kubectl.run("scale", job.resource, "--replicas=3")
    job.wait_until(lambda: len(job.pods("replica")) == 3, "a third replica is made")
    assert before < job.uids()
    job.patch(suspend=True)
    job.wait_for_phase("Suspended")
    job.wait_until(lambda: job.pods() == [], "no pod is left")
    job.patch(suspend=False)
    trains_on(job)
    job.wait_until(lambda: len(job.pods("replica")) == 3, "all replicas are back")
    assert {image(pod) for pod in job.pods()} == {product_images.RUNTIME}
    assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in job.pods()} == {120}

    resumed = job.uids()
    helm.upgrade(job.kubectl, RELEASE, helm.only_in(job.kubectl), chart_before)
    trains_on(job)
    assert job.uids() == resumed
    assert_nothing_ails(job)
    job.kubectl.run("delete", f"replicaset/{job.name}-replica")
    job.wait_until(lambda: len(job.pods("replica")) == 3, "lost replicas are made again")
    job.patch(activeDeadlineSeconds=1)
    assert job.wait_for_condition("Failed")["reason"] == "DeadlineExceeded"
    job.wait_until(lambda: job.pods() == [], "nothing of it runs")


def another_version(job: ClusterTraining, hooks: Hooks, folder: Path) -> dict[str, Any]:
    """Values of an operator with other templates, whose jobs would run another image."""
    file = folder / "Containerfile"
    file.write_text(CONTAINERFILE)
    tag = product_images.OPERATOR.replace(product_images.VERSION, NEXT)
    product_images.build_and_load(hooks, images.Recipe(containerfile=file, context=folder, tag=tag))
    wanted = {"image": {"tag": NEXT}, "runtimeImage": {"tag": "nowhere"}, "podLabels": {"a": "b"}}
    return {**helm.only_in(job.kubectl), **wanted}


def image(pod: dict[str, Any]) -> str:
    (container,) = pod["spec"]["containers"]
    return str(container["image"])


def assert_nothing_ails(job: ClusterTraining) -> None:
    # The operator before may have said so, too.
    assert "InvalidTemplate" not in {each["type"] for each in job.status()["conditions"]}
    assert job.condition("Degraded")["status"] == "False"


def trains_on(job: ClusterTraining) -> None:
    before = job.samples()
    job.wait_until(lambda: job.samples() > before, "training goes on")
