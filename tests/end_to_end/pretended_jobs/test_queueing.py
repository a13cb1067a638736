"""A job that a queue lets in and sends away again, as Kueue does: by spec.suspend and templates."""

import json
from typing import Any

from builders import cluster_jobs
from builders.job_view import OWN_KINDS
from builders.pretended_training import PretendedTraining

QUEUE = {"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "high"}


def test_a_queue_lets_it_in_as_a_whole_and_sends_it_away_in_order(job: PretendedTraining) -> None:
    waiting = cluster_jobs.pretending(job.name, suspend=True)
    waiting["metadata"]["labels"] = QUEUE
    job.kubectl.apply(waiting)
    job.wait_for_phase("Suspended")
    assert job.leftovers() == []

    job.patch(suspend=False)
    job.wait_for_phase("Running")
    job.wait_until(lambda: len(_running(job.pods())) == 5, "all its pods run")
    children = job.kubectl.run("get", OWN_KINDS, "-o", "json", "-l", f"{INSTANCE}={job.name}")
    assert len(json.loads(children)["items"]) > len(job.children)
    # The queue would hold back pod by pod what it has let in as a whole.
    assert "kueue" not in children

    job.patch(suspend=True)
    job.wait_until(lambda: _stops_in_order(job), "no pod is left")
    job.wait_for_phase("Suspended")
    job.patch(suspend=False)
    job.wait_for_phase("Running")


ROLES = ("coordinator", "parameterServer", "replicas")
FLAVORS = ({"kubernetes.io/os": "linux"}, {"kubernetes.io/arch": "amd64"})
"""Labels that every node has, one after the other."""


def test_a_queue_sends_it_to_nodes_of_its_choice_and_to_others_after_an_eviction(
    job: PretendedTraining,
) -> None:
    job.apply(suspend=True)
    job.wait_for_phase("Suspended")
    for flavor in FLAVORS:
        template = {"template": {"spec": {"nodeSelector": flavor}}}
        job.patch(suspend=False, **dict.fromkeys(ROLES, template))
        job.wait_for_phase("Running")
        job.wait_until(lambda: len(_running(job.pods())) == 5, "all its pods run")
        assert [pod["spec"].get("nodeSelector") for pod in job.pods()] == [flavor] * 5
        nowhere: dict[str, Any] = {"template": {"spec": {"nodeSelector": None}}}
        job.patch(suspend=True, **dict.fromkeys(ROLES, nowhere))
        job.wait_for_phase("Suspended")
        job.wait_until(lambda: job.pods() == [], "no pod is left")


INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"


def _stops_in_order(job: PretendedTraining) -> bool:
    """Whether all have stopped; until the coordinator has, nobody else may have been told to."""
    pods = job.pods()
    coordinators = [pod for pod in _running(pods) if _role(pod) == "coordinator"]
    stopping = [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]
    assert not coordinators or not [pod for pod in stopping if _role(pod) != "coordinator"]
    return not pods


def _role(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"][COMPONENT])


def _running(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pod for pod in pods if pod["status"]["phase"] == "Running"]
