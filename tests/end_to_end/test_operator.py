"""The operator against a real Kubernetes, with pods that only pretend to train."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from builders import cluster_jobs, operator_process
from builders.operator_process import OperatorProcess
from cluster import Kubectl, commands, volumes
from cluster.errors import CommandFailed
from disttrain.job import crd

PATIENCE = timedelta(seconds=100)
"""Pods start slowly where many tests share two cores."""
NAME = "job"
CHILDREN = (
    "statefulset/job-shard",
    "deployment/job-replica",
    "job.batch/job-coordinator",
    "service/job",
    "configmap/job-launch",
    "serviceaccount/job-coordinator",
    "role/job-coordinator",
    "rolebinding/job-coordinator",
    "poddisruptionbudget/job-shard",
    "networkpolicy/job",
)


@pytest.fixture(scope="module")
def definition(kubectl: Kubectl) -> None:
    kubectl.apply(crd.definition())
    kubectl.wait_until("Established", f"crd/{crd.NAME}", PATIENCE)


@pytest.fixture
def place(definition: None, namespace: Kubectl) -> Kubectl:
    """A namespace with a volume for the job's checkpoints."""
    claim = f"{namespace.namespace}/{NAME}-checkpoints"
    volumes.make(namespace, f"{namespace.namespace}-checkpoints", claim=claim)
    return namespace


@pytest.fixture
def operator(place: Kubectl, tmp_path: Path) -> Iterator[OperatorProcess]:
    log = tmp_path / "operator.log"
    with operator_process.running(place, log) as process:
        yield process
    print(log.read_text()[-8000:])  # noqa: T201 - Shown if the test fails.


def wait_for_phase(place: Kubectl, phase: str, name: str = NAME) -> None:
    path = "{.status.phase}"
    commands.wait_until(
        lambda: place.read("disttrainjob", name, path) == phase,
        f"the job's phase is {phase}",
        limit=PATIENCE,
    )


def start(place: Kubectl, **spec: Any) -> None:
    place.apply(cluster_jobs.pretending(NAME, **spec))
    wait_for_phase(place, "Running")


def finish(place: Kubectl, words: str) -> None:
    (pod,) = pods(place, "coordinator")
    place.wait_until("Ready", f"pod/{pod['metadata']['name']}", PATIENCE)
    script = f"echo '{words}' > {cluster_jobs.FINISH}"
    place.run("exec", pod["metadata"]["name"], "--", "sh", "-c", script)


def pods(place: Kubectl, component: str) -> list[dict[str, Any]]:
    return place.items("pods", f"app.kubernetes.io/component={component}")


def condition(place: Kubectl, kind: str) -> dict[str, Any]:
    job = place.get("disttrainjob", NAME)
    found = job.get("status", {}).get("conditions", [])
    return next((each for each in found if each["type"] == kind), {})


def wait_for_condition(place: Kubectl, kind: str) -> dict[str, Any]:
    commands.wait_until(
        lambda: condition(place, kind).get("status") == "True", kind, limit=PATIENCE
    )
    return condition(place, kind)


def exists(place: Kubectl, child: str) -> bool:
    try:
        place.run("get", child)
    except CommandFailed:
        return False
    return True


def test_a_job_runs_completes_and_leaves_only_its_volume(
    place: Kubectl, operator: OperatorProcess
) -> None:
    start(place)
    assert [child for child in CHILDREN if not exists(place, child)] == []
    assert len(pods(place, "replica")) == 2
    assert len(pods(place, "shard")) == 2

    finish(place, cluster_jobs.outcome("Complete", "EpochsDone", "1 epoch"))
    place.wait_until("Complete", f"disttrainjob/{NAME}")

    commands.wait_until(
        lambda: not pods(place, "replica") and not pods(place, "shard"), "the others are gone"
    )
    assert condition(place, "Complete")["reason"] == "EpochsDone"
    (coordinator,) = pods(place, "coordinator")
    assert coordinator["status"]["phase"] == "Succeeded"
    annotation = place.get("disttrainjob", NAME)["metadata"]["annotations"]["disttrain.dev/outcome"]
    assert json.loads(annotation)["phase"] == "Complete"

    place.run("delete", "disttrainjob", NAME, "--timeout=30s")
    commands.wait_until(
        lambda: not [child for child in CHILDREN if exists(place, child)], "nothing is left"
    )
    assert exists(place, f"persistentvolumeclaim/{NAME}-checkpoints")


def test_nothing_is_created_after_the_end(place: Kubectl, operator: OperatorProcess) -> None:
    start(place)
    finish(place, cluster_jobs.outcome("Failed", "Diverged", "the loss is not finite"))
    wait_for_condition(place, "Failed")

    place.run(
        "delete", "statefulset/job-shard", "job.batch/job-coordinator", "configmap/job-launch"
    )
    operator.kill()
    overwritten = json.dumps({"status": {"phase": "Running", "conditions": []}})
    place.run(
        "patch", "disttrainjob", NAME, "--subresource=status", "--type=merge", "-p", overwritten
    )
    operator.start()

    wait_for_condition(place, "Failed")
    assert condition(place, "Failed")["reason"] == "Diverged"
    assert not exists(place, "statefulset/job-shard")
    assert not exists(place, "job.batch/job-coordinator")


@pytest.mark.parametrize("child", CHILDREN)
def test_a_child_deleted_by_hand_comes_back(
    place: Kubectl, operator: OperatorProcess, child: str
) -> None:
    start(place)
    uid = place.run("get", child, "-o", "jsonpath={.metadata.uid}")

    place.run("delete", child)

    def is_back() -> bool:
        try:
            return place.run("get", child, "-o", "jsonpath={.metadata.uid}") != uid
        except CommandFailed:
            return False

    commands.wait_until(is_back, f"{child} is made again", limit=PATIENCE)


def test_a_child_edited_by_hand_is_what_it_was_again(
    place: Kubectl, operator: OperatorProcess
) -> None:
    start(place)
    patch = json.dumps({"spec": {"podManagementPolicy": "Parallel", "replicas": 0}})
    place.run("patch", "statefulset/job-shard", "--type=merge", "-p", patch)

    commands.wait_until(
        lambda: place.read("statefulset", "job-shard", "{.spec.replicas}") == "2", "2 shards again"
    )


def test_suspending_stops_all_and_resuming_starts_all(
    place: Kubectl, operator: OperatorProcess
) -> None:
    start(place)
    place.run("patch", "disttrainjob", NAME, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    wait_for_phase(place, "Suspended")
    commands.wait_until(lambda: not place.items("pods"), "no pod is left", limit=PATIENCE)

    place.run("patch", "disttrainjob", NAME, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    wait_for_phase(place, "Running")
    commands.wait_until(lambda: len(place.items("pods")) == 5, "all pods are there")


def test_a_job_created_suspended_has_no_pods(place: Kubectl, operator: OperatorProcess) -> None:
    place.apply(cluster_jobs.pretending(NAME, suspend=True))

    wait_for_phase(place, "Suspended")
    assert place.items("pods") == []


def test_kubectl_scales_the_replicas(place: Kubectl, operator: OperatorProcess) -> None:
    start(place)

    place.run("scale", "disttrainjob", NAME, "--replicas=3")
    commands.wait_until(lambda: len(pods(place, "replica")) == 3, "3 replicas")
    place.run("scale", "disttrainjob", NAME, "--replicas=1")

    commands.wait_until(lambda: len(pods(place, "replica")) == 1, "1 replica", limit=PATIENCE)
    assert len(pods(place, "shard")) == 2


def test_a_finished_job_is_deleted_after_its_time(
    place: Kubectl, operator: OperatorProcess
) -> None:
    start(place, ttlSecondsAfterFinished=2)
    finish(place, cluster_jobs.outcome("Complete", "EpochsDone", ""))

    place.wait_until("delete", f"disttrainjob/{NAME}", PATIENCE)


def test_a_job_past_its_deadline_fails_and_stops(place: Kubectl, operator: OperatorProcess) -> None:
    place.apply(cluster_jobs.pretending(NAME, activeDeadlineSeconds=6))

    wait_for_condition(place, "Failed")
    assert condition(place, "Failed")["reason"] == "DeadlineExceeded"
    commands.wait_until(lambda: not place.items("pods"), "no pod is left", limit=PATIENCE)


def test_a_job_deleted_and_applied_at_once_runs(place: Kubectl, operator: OperatorProcess) -> None:
    start(place)
    before = place.read("disttrainjob", NAME, "{.metadata.uid}")

    place.run("delete", "disttrainjob", NAME, "--wait=false")
    place.wait_until("delete", f"disttrainjob/{NAME}", PATIENCE)
    start(place)

    assert place.read("disttrainjob", NAME, "{.metadata.uid}") != before
    uids = {pod["metadata"]["labels"]["disttrain.dev/job-uid"] for pod in place.items("pods")}
    assert before not in uids or len(uids) == 2


def test_a_restarted_operator_adopts_what_it_finds(
    place: Kubectl, operator: OperatorProcess
) -> None:
    start(place)
    uids = {pod["metadata"]["uid"] for pod in place.items("pods")}

    operator.kill()
    finish(place, cluster_jobs.outcome("Complete", "EpochsDone", "meanwhile"))
    operator.start()

    place.wait_until("Complete", f"disttrainjob/{NAME}")
    assert condition(place, "Complete")["message"] == "meanwhile"
    assert {pod["metadata"]["uid"] for pod in place.items("pods")} <= uids


def test_somebody_elses_object_is_not_touched(place: Kubectl, operator: OperatorProcess) -> None:
    place.run("create", "configmap", "job-launch", "--from-literal=mine=yes")

    place.apply(cluster_jobs.pretending(NAME))

    assert "job-launch" in wait_for_condition(place, "NameConflict")["message"]
    assert place.read("configmap", "job-launch", "{.data.mine}") == "yes"
    place.run("delete", "configmap", "job-launch")
    wait_for_phase(place, "Running")


def test_a_template_that_the_api_server_refuses_is_told_in_its_words(
    place: Kubectl, operator: OperatorProcess
) -> None:
    template = {"spec": {"nodeSelectr": {"disk": "fast"}}}
    place.apply(cluster_jobs.pretending(NAME, replicas={"count": 1, "template": template}))

    told = wait_for_condition(place, "InvalidTemplate")
    assert "nodeSelectr" in told["message"]
    assert place.items("pods") == []


def test_a_template_that_asks_for_the_node_is_refused(
    place: Kubectl, operator: OperatorProcess
) -> None:
    template = {"spec": {"hostNetwork": True}}
    place.apply(cluster_jobs.pretending(NAME, replicas={"count": 1, "template": template}))

    assert "hostNetwork" in wait_for_condition(place, "InvalidTemplate")["message"]


def test_an_image_that_is_not_there_is_told(place: Kubectl, operator: OperatorProcess) -> None:
    place.apply(cluster_jobs.pretending(NAME, image="test.disttrain.dev/nothing:1"))

    assert "nothing:1" in wait_for_condition(place, "CannotStart")["message"]


def test_a_job_that_somebody_else_manages_is_left_alone(
    place: Kubectl, operator: OperatorProcess
) -> None:
    place.apply(cluster_jobs.pretending(NAME, managedBy="example.com/other"))
    place.apply(cluster_jobs.pretending("ours", suspend=True))

    wait_for_phase(place, "Suspended", "ours")
    assert "status" not in place.get("disttrainjob", NAME)


def test_a_dying_shard_is_counted_and_told(place: Kubectl, operator: OperatorProcess) -> None:
    dying = cluster_jobs.template("echo out of luck; exit 7")
    shards = {"shards": 1, "template": dying}
    place.apply(cluster_jobs.pretending(NAME, parameterServer=shards))

    commands.wait_until(
        lambda: bool(place.read("disttrainjob", NAME, "{.status.failures[0].pod}")),
        "the death is told",
        limit=PATIENCE,
    )
    failure = place.get("disttrainjob", NAME)["status"]["failures"][0]
    assert (failure["role"], failure["exitCode"]) == ("shard", 7)
    assert "out of luck" in failure["logTail"]
    commands.wait_until(
        lambda: int(place.read("disttrainjob", NAME, "{.status.restarts.shard}") or 0) > 0,
        "the restart is counted",
        limit=PATIENCE,
    )


def test_a_quota_that_leaves_no_room_is_told(place: Kubectl, operator: OperatorProcess) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    place.apply({**quota, "spec": {"hard": {"pods": "0"}}})

    place.apply(cluster_jobs.pretending(NAME))

    assert "exceeded quota" in wait_for_condition(place, "CannotStart")["message"]
