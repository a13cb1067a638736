"""Digits, speech and a text with every strategy in real pods: one process of each role dies."""

import shutil
from typing import Any, Final

import pytest

from builders import cluster_training, held_jobs, product_images
from builders.cluster_training import HURRY, PATIENT, ClusterTraining
from builders.held_jobs import HeldJob
from builders.operator_process import OperatorProcess
from cluster import Kubectl, images
from cluster.hooks import Hooks

pytestmark = pytest.mark.nightly

IMAGE: Final = f"{product_images.PREFIX}disttrain-held:{product_images.VERSION}"
CONTAINERFILE: Final = f"""
FROM {product_images.RUNTIME}
COPY task/*.py /task/
COPY data /data
"""
ROLES: Final = ("replica", "shard", "coordinator")


@pytest.fixture(scope="module")
def image(
    image_tools: Hooks,
    runtime_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """The runtime's image with the examples' code and data."""
    context = tmp_path_factory.mktemp("held")
    (context / "Containerfile").write_text(CONTAINERFILE)
    (context / "task").mkdir()
    for each in held_jobs.CODE:
        shutil.copy(each, context / "task")
    shutil.copytree(held_jobs.EXAMPLES / "data", context / "data")
    recipe = images.Recipe(containerfile=context / "Containerfile", context=context, tag=IMAGE)
    return product_images.build_and_load(image_tools, recipe)


@pytest.mark.parametrize(("example", "strategy"), held_jobs.ALL)
def test_every_role_is_killed_and_the_audit_passes(
    hooks: Hooks,
    namespace: Kubectl,
    operator_to_kill: OperatorProcess,
    image: str,
    example: str,
    strategy: str,
) -> None:
    held = HeldJob(example, strategy)
    job = ClusterTraining(hooks, namespace, held.name)
    job.submit(manifest(held, image))
    job.wait_until(lambda: held.has_learned_something(job.progress()), "every role has worked")
    for role in ROLES:
        kill(job, role)

    # What is held up goes on, ends well, and keeps all promises.
    summary = job.complete()
    assert summary["restarts"] == dict.fromkeys(ROLES, 1)
    assert {each["role"] for each in job.status()["failures"]} == set(ROLES)
    assert sum(tensor.numel() for tensor in job.trained().values()) > 0


def kill(job: ClusterTraining, role: str) -> None:
    """Return when its next incarnation runs, and all replicas are members again."""
    job.kill(role)
    job.wait_until(lambda: sum(job.restarts(role)) == 1, f"the {role} starts again")
    job.wait_until(lambda: job.progress().get("liveReplicas") == 2, "both replicas train")


def manifest(held: HeldJob, image: str) -> dict[str, Any]:
    """The job, of small pods."""
    made = held.manifest(HURRY)
    made["spec"] |= {"image": image, "coordinator": dict(PATIENT)}
    cluster_training.make_small(made)
    return made
