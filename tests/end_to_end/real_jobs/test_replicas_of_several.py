"""Replicas of two pods learn digits: what strikes one of the two starts both again, nobody else.

They divide the model into partitions, or by its rows with FSDP2.
"""

from collections.abc import Callable

import pytest

from builders.cluster_training import CONTAINER, HURRY, ClusterTraining
from builders.operator_process import OperatorProcess
from cluster import Cluster, Kubectl
from cluster.hooks import Hooks

pytestmark = pytest.mark.landing
NAME = "digits"
MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: digits}
spec:
  task: {entrypoint: slow_digits:SlowDigits}
  strategy:
    downpour:
      optimizer: {adagrad: {learningRate: 0.02}}
  batchSize: 32
  stop: {epochs: 8}
  audit: full
  checkpoint: {everySeconds: 5}
  coordinator: {heartbeatSeconds: 0.2, leaseSeconds: 5, memberTimeoutSeconds: 20}
  parameterServer: {shards: 2}
  replicas: {count: 2, partitions: 2, device: cpu}
"""
STEP_SECONDS = 6.0
"""45 steps of an epoch on two replicas: 18 minutes, unless the test asks for the end."""
FIRST, SECOND = (
    tuple(f"{NAME}-replica-{index}-{process}" for process in range(2)) for index in range(2)
)
OTHERS = ("coordinator", "shard")
ACCURACY = 0.9
ROWS = (
    MANIFEST.replace(
        "      optimizer: {adagrad: {learningRate: 0.02}}\n",
        "      steps: 8\n      optimizer: {name: AdamW, arguments: {lr: 0.003}}\n",
    )
    .replace("downpour", "localSteps")
    .replace("partitions: 2", "ranks: 2, inner: fsdp2")
)
KILLED = 137


@pytest.fixture
def digits(hooks: Hooks, namespace: Kubectl, operator_to_kill: OperatorProcess) -> ClusterTraining:
    """Trains, every process of it, when it is given."""
    made = ClusterTraining(hooks, namespace, NAME, MANIFEST)
    slow = {"step_seconds": STEP_SECONDS, "hurry": HURRY}
    # Who is stopped cannot use the time to end.
    made.apply_task("slow_digits:SlowDigits", slow, {"terminationGracePeriodSeconds": 5})
    made.wait_until(lambda: all_train(made), "both replicas train")
    return made


def all_train(job: ClusterTraining) -> bool:
    """A replica that lives may not have formed its group yet; then its processes are not ready."""
    conditions = [
        {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
        for pod in job.pods("replica")
    ]
    return len(conditions) == len(FIRST + SECOND) and all(
        each.get("Ready") == "True" for each in conditions
    )


def restarts(job: ClusterTraining) -> dict[str, int]:
    """How often each pod's process was started again."""
    return {
        pod["metadata"]["name"]: each["restartCount"]
        for pod in job.pods()
        for each in pod["status"].get("containerStatuses", [])
    }


def strike(job: ClusterTraining, struck: tuple[str, ...], deed: Callable[[str], None]) -> None:
    """Do something to a pod, and wait until its replica trains again, and others went on."""
    before, pods = restarts(job), job.uids()
    deed(struck[0])
    expected = {name: times + (name in struck) for name, times in before.items()}
    job.wait_until(lambda: restarts(job) == expected, f"{' and '.join(struck)} start again")
    job.wait_until(
        lambda: all(incarnation(job, name) == (2, "live") for name in struck), "they have joined"
    )
    samples = job.samples()
    job.wait_until(lambda: job.samples() > samples, "training goes on")
    assert restarts(job) == expected
    assert job.uids() == pods


def incarnation(job: ClusterTraining, pod: str) -> tuple[int, str]:
    """Number and state of the process in a pod, which has the pod's name without the job's."""
    name = pod.removeprefix(f"{NAME}-")
    found = (each for each in job.progress().get("members", []) if each["name"] == name)
    return next(((each["incarnation"], each["state"]) for each in found), (0, ""))


def test_who_is_killed_and_who_hangs_take_their_replica_along_and_nobody_else(
    own_cluster: Cluster, digits: ClusterTraining
) -> None:
    namespace = digits.kubectl.namespace
    # The one that follows and the one that leads, each of another replica.
    strike(digits, FIRST[::-1], lambda pod: digits.hooks.kill(namespace, pod, CONTAINER))
    strike(digits, SECOND, lambda pod: own_cluster.stop_container(namespace, pod, CONTAINER))

    summary = digits.complete()
    assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 2}
    assert summary["finalMeasures"]["accuracy"] > ACCURACY
    status = digits.status()
    assert status["restarts"]["replica"] == 2, "one of each replica, whoever followed"
    struck = [(each["pod"], each["exitCode"]) for each in status["failures"]]
    assert sorted(struck) == [(FIRST[1], KILLED), (SECOND[0], KILLED)]


def test_ranks_that_have_rows_of_the_model_learn(
    hooks: Hooks, namespace: Kubectl, operator_to_kill: OperatorProcess
) -> None:
    job = ClusterTraining(hooks, namespace, NAME, ROWS)
    job.apply_task("slow_digits:SlowDigits", {"step_seconds": 0.0, "hurry": HURRY}, {})
    summary = job.complete()
    assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 0}
    assert summary["finalMeasures"]["accuracy"] > ACCURACY
