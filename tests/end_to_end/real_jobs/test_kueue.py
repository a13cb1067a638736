"""The real Kueue decides when real jobs run: quota, flavors, priorities, fewer replicas, wrappers.

Its webhooks see the pods of the whole cluster, so no other test may run meanwhile.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from builders import app_wrappers, installations, queues
from builders.app_wrappers import WrappedTraining
from builders.cluster_training import (
    EPOCHS,
    PATIENT,
    SAMPLES,
    ClusterTraining,
    assert_nothing_was_lost_or_repeated,
)
from builders.operator_process import OperatorProcess
from builders.queues import Queue
from cluster import Kubectl
from cluster.hooks import Hooks

pytestmark = [pytest.mark.alone, pytest.mark.nightly, pytest.mark.timeout(1500)]
PODS = 5
"""Of a job with two shards and two replicas."""
CPU_MILLIS = 20
"""What each of them asks for."""
SELDOM = {"everySeconds": 1000}
"""No checkpoint but the one that suspending writes."""


@pytest.fixture(scope="module")
def kueue(kubectl: Kubectl, image_tools: Hooks, image_of_jobs: None) -> Iterator[None]:
    """Kueue on the cluster, which knows jobs."""
    with queues.installed(kubectl, image_tools):
        yield


@pytest.fixture(scope="module")
def appwrapper(kubectl: Kubectl, image_tools: Hooks, kueue: None) -> Iterator[None]:
    """AppWrapper's controller beside it."""
    with app_wrappers.installed(kubectl, image_tools):
        yield


@pytest.fixture
def queue(kueue: None, namespace: Kubectl, operator_to_kill: OperatorProcess) -> Iterator[Queue]:
    """A queue of the test's namespace; jobs are gone before it is."""
    yield Queue(namespace)
    kinds = "disttrainjobs,localqueues"
    namespace.run("delete", kinds, "--all", "--ignore-not-found", limit=installations.LIMIT)


@pytest.fixture
def wrapped(
    hooks: Hooks, namespace: Kubectl, queue: Queue, appwrapper: None
) -> Iterator[WrappedTraining]:
    """A job that can be applied in the AppWrapper of docs/queues.md."""
    yield WrappedTraining(hooks, namespace)
    # Before its controller goes, which takes its finalizer away.
    namespace.run("delete", "appwrappers", "--all", limit=installations.LIMIT)


def test_the_own_program_passes_its_tests(kubectl: Kubectl) -> None:
    # The cluster's fixture says why where nothing can be built.
    installations.OWN.run_own_tests()


def test_a_job_waits_is_admitted_evicted_and_goes_on_from_its_checkpoint(
    hooks: Hooks, namespace: Kubectl, queue: Queue
) -> None:
    job = ClusterTraining(hooks, namespace)
    urgent = ClusterTraining(hooks, namespace, "urgent")
    queue.make(pods=0, cpu_millis=CPU_MILLIS)
    held: dict[str, Any] = {"suspend": True, "coordinator": PATIENT}
    job.apply(checkpoint=SELDOM, **held)
    queue.put(job.resource, "low")
    job.wait_until(lambda: queue.waits(job.name), "Kueue has no quota for it")
    job.wait_for_condition("Suspended")
    assert job.leftovers() == []

    queue.resize(PODS)
    job.wait_until(lambda: bool(queue.holds(job.name, "Admitted")), "there is quota")
    job.train()
    assert [pod["spec"].get("nodeSelector") for pod in job.pods()] == [queues.FLAVOR] * PODS

    urgent.apply(step_seconds=0.05, stop={"epochs": 1}, **held)
    queue.put(urgent.resource, "high")
    job.wait_for_condition("Suspended")
    job.wait_until(lambda: job.pods() == [], "no pod is left")
    before = job.samples()
    assert 0 < before < EPOCHS * SAMPLES
    assert nodes_asked_for(job) == [None] * 3
    urgent.end()
    urgent.wait_until(
        lambda: queue.holds(urgent.name, "Finished") == "Succeeded", "Kueue knows that it ended"
    )

    job.wait_until(lambda: job.samples() > before, "training goes on")
    # No audit: it wants training to move again within a minute, an eviction included.
    assert_nothing_was_lost_or_repeated(job, job.end())


def test_a_job_begins_with_the_replicas_that_there_is_quota_for(
    hooks: Hooks, namespace: Kubectl, queue: Queue
) -> None:
    job = ClusterTraining(hooks, namespace, "elastic")
    queue.make(pods=PODS - 1, cpu_millis=CPU_MILLIS)
    job.apply(suspend=True, coordinator=PATIENT)
    namespace.run("annotate", job.resource, "kueue.x-k8s.io/job-min-parallelism=1")
    queue.put(job.resource, "low")

    job.train()
    assert job.get()["spec"]["replicas"]["count"] == len(job.pods("replica")) == 1
    assert_nothing_was_lost_or_repeated(job, job.end())


def test_a_wrapped_job_is_evicted_and_goes_on_and_its_wrapper_succeeds(
    queue: Queue, wrapped: WrappedTraining
) -> None:
    queue.make(pods=0, cpu_millis=CPU_MILLIS)
    wrapped.apply(suspend=True, coordinator=PATIENT, checkpoint=SELDOM)
    wrapped.wait_until(lambda: queue.waits(wrapped.name), "Kueue has no quota for it")
    queue.resize(PODS)
    wrapped.train()
    assert [pod["spec"].get("nodeSelector") for pod in wrapped.pods()] == [queues.FLAVOR] * PODS

    queue.stop()
    wrapped.wait_for_condition("Suspended")
    wrapped.wait_until(lambda: wrapped.pods() == [], "no pod is left")
    before = wrapped.samples()
    assert 0 < before < EPOCHS * SAMPLES
    queue.go_on()
    wrapped.wait_until(lambda: wrapped.samples() > before, "training goes on")

    assert wrapped.told()["phase"] == "Running"
    assert_nothing_was_lost_or_repeated(wrapped, wrapped.end())
    wrapped.wait_for_its_wrapper("Succeeded")
    assert wrapped.get()["metadata"]["uid"] == wrapped.uid
    assert queue.holds(wrapped.name, "Finished") == "Succeeded"


def test_a_wrapper_in_a_queue_makes_an_evicted_job_anew(
    queue: Queue, wrapped: WrappedTraining
) -> None:
    wrapped.wrapper = app_wrappers.with_the_queue()
    queue.make(pods=PODS, cpu_millis=CPU_MILLIS)
    # Kueue's change of an AppWrapper loses a null, and AppWrapper lets nobody change the job.
    wrapped.apply(coordinator=PATIENT, evaluation={})
    wrapped.train()
    first = wrapped.uid

    queue.stop()
    wrapped.wait_until(lambda: not wrapped.has(wrapped.resource), "its wrapper deletes the job")
    queue.go_on()
    wrapped.meet()

    assert wrapped.uid != first
    assert wrapped.end()["samples"] == EPOCHS * SAMPLES


def test_a_wrapper_deletes_a_job_that_waits_longer_than_its_annotation_says(
    queue: Queue, wrapped: WrappedTraining
) -> None:
    wrapped.wrapper = app_wrappers.documented(patience="30s")
    queue.make(pods=0, cpu_millis=CPU_MILLIS)
    wrapped.apply(suspend=True)

    wrapped.wait_for_its_wrapper("Failed")
    wrapped.wait_until(lambda: not wrapped.has(wrapped.resource), "the job is gone")
    assert wrapped.complaint() == (
        "InsufficientPodsReady",
        "0 pods pending; 0 pods running; 0 pods succeeded",
    )


def test_a_wrapper_takes_the_end_of_a_job_that_failed_for_success(
    queue: Queue, wrapped: WrappedTraining
) -> None:
    queue.make(pods=PODS, cpu_millis=CPU_MILLIS)
    wrapped.apply(task="broken_import:Task", suspend=True)

    wrapped.wait_for_its_wrapper("Succeeded")
    assert wrapped.status()["phase"] == "Failed"
    assert queue.holds(wrapped.name, "Finished") == "Failed"


def nodes_asked_for(job: ClusterTraining) -> list[dict[str, str] | None]:
    """The node selectors of the three templates in the job's object."""
    spec = job.get()["spec"]
    roles = ("coordinator", "parameterServer", "replicas")
    return [spec[role]["template"]["spec"].get("nodeSelector") for role in roles]
