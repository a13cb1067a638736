"""How a job ended, out of texts that anybody may have written."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from disttrain.job import cluster_labels
from disttrain_operator.kinds import Kind
from disttrain_operator.observed import outcomes
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.news import News
from disttrain_operator.observed.records import EndPhase, JobKey, Outcome
from disttrain_operator.observed.watched import Sights

CREATED = datetime(2026, 3, 1, tzinfo=UTC)
ENDED = CREATED + timedelta(hours=1)
KEY = JobKey("here", "digits")


def a_job(annotation: str) -> dict[str, Any]:
    metadata = {
        "namespace": KEY.namespace,
        "name": KEY.name,
        "uid": "uid",
        "resourceVersion": "1",
        "creationTimestamp": CREATED.isoformat(),
        "annotations": {cluster_labels.OUTCOME: annotation},
    }
    return {"metadata": metadata, "spec": {}}


def a_coordinator(finished: dict[str, str]) -> dict[str, Any]:
    words = json.dumps({"phase": "Complete", "reason": "EpochsDone"})
    ended = {"exitCode": 0, "message": words, **finished}
    labels = {
        cluster_labels.INSTANCE: KEY.name,
        cluster_labels.JOB_UID: "uid",
        cluster_labels.COMPONENT: "coordinator",
    }
    metadata = {**a_job("")["metadata"], "name": "digits-coordinator", "labels": labels}
    container = {"name": "disttrain", "state": {"terminated": ended}}
    status = {"phase": "Succeeded", "containerStatuses": [container]}
    return {"metadata": metadata, "status": status}


def test_an_outcome_is_read_as_it_was_written() -> None:
    outcome = Outcome(
        phase=EndPhase.FAILED, reason="Diverged", message="loss", time=ENDED, by_operator=True
    )

    assert outcomes.from_annotation(outcomes.to_annotation(outcome), CREATED) == outcome


@pytest.mark.parametrize("time", [{}, {"time": "yesterday"}, {"time": None}])
def test_an_outcome_whose_time_is_spoiled_is_no_news_each_time(time: dict[str, Any]) -> None:
    inventory = Inventory()
    sights = Sights(inventory, frozenset())
    body = a_job(json.dumps({"phase": "Complete", **time}))

    found = [sights.seen(Kind.DistTrainJob, body).news for _ in range(2)]

    assert found == [News.DECISIVE, News.NOTHING]
    job = inventory.at(KEY).job
    assert job is not None
    assert job.outcome is not None
    assert job.outcome.time == CREATED


@pytest.mark.parametrize(
    ("finished", "time"), [({"finishedAt": ENDED.isoformat()}, ENDED), ({}, CREATED)]
)
def test_a_coordinator_that_ended_at_an_unknown_time_is_no_news_each_time(
    finished: dict[str, str], time: datetime
) -> None:
    inventory = Inventory()
    sights = Sights(inventory, frozenset())
    body = a_coordinator(finished)

    found = [sights.seen(Kind.Pod, body).news for _ in range(2)]

    assert found == [News.DECISIVE, News.NOTHING]
    (pod,) = inventory.at(KEY).pods.values()
    assert pod.outcome is not None
    assert pod.outcome.time == time


@pytest.mark.parametrize(
    "written", ["", "{", "[]", "null", '{"phase": []}', '{"phase": {}}', '{"phase": "Stopped"}']
)
def test_what_is_no_outcome_is_none(written: str) -> None:
    assert outcomes.from_annotation(written, CREATED) is None
    assert outcomes.from_termination(written, ENDED) is None
