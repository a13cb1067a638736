"""How a job ended, out of texts that anybody may have written."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from builders import operator_jobs
from disttrain.job import cluster_labels
from disttrain_operator.kinds import Kind
from disttrain_operator.observed import outcomes, parsing
from disttrain_operator.observed.inventory import Change, Inventory, Observed
from disttrain_operator.observed.records import EndPhase, JobKey, Outcome
from disttrain_operator.observed.watched import Observer
from disttrain_operator.policies import conditions
from disttrain_operator.policies.stages import Stage
from disttrain_operator.reconcile import report

CREATED = datetime(2026, 3, 1, tzinfo=UTC)
ENDED = CREATED + timedelta(hours=1)
KEY = JobKey("here", "digits")


def a_job(*told: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "namespace": KEY.namespace,
        "name": KEY.name,
        "uid": "uid",
        "resourceVersion": "1",
        "creationTimestamp": CREATED.isoformat(),
    }
    return {"metadata": metadata, "spec": {}, "status": {"conditions": list(told)}}


def a_coordinator(finished: dict[str, str]) -> dict[str, Any]:
    words = json.dumps({"phase": "Complete", "reason": "EpochsDone"})
    ended = {"exitCode": 0, "message": words, **finished}
    labels = {
        cluster_labels.INSTANCE: KEY.name,
        cluster_labels.JOB_UID: "uid",
        cluster_labels.COMPONENT: "coordinator",
    }
    metadata = {**a_job()["metadata"], "name": "digits-coordinator", "labels": labels}
    container = {"name": "disttrain", "state": {"terminated": ended}}
    status = {"phase": "Succeeded", "containerStatuses": [container]}
    return {"metadata": metadata, "status": status}


@pytest.mark.parametrize(
    ("reason", "by_operator"), [("Diverged", False), ("DeadlineExceeded", True)]
)
def test_an_outcome_is_read_as_it_was_written(reason: str, *, by_operator: bool) -> None:
    outcome = Outcome(phase=EndPhase.FAILED, reason=reason, message="loss", time=ENDED)
    situation = conditions.Situation(
        job=operator_jobs.job(),
        observed=Observed(),
        spec=operator_jobs.context().job.spec,
        stage=Stage.ENDED,
        outcome=outcome,
        problems=(),
    )
    written = conditions.of(situation, {}, ENDED + timedelta(seconds=7))
    body = a_job(*(each.model_dump(mode="json", by_alias=True) for each in written))

    job = parsing.job(body, report.FIELDS)

    assert job.outcome == outcome
    assert outcome.by_operator is by_operator


def test_what_stopped_workloads_keep_of_an_outcome_is_the_same() -> None:
    outcome = Outcome(phase=EndPhase.FAILED, reason="Diverged", message="loss", time=ENDED)

    assert outcomes.from_annotation(outcomes.to_annotation(outcome), CREATED) == outcome


@pytest.mark.parametrize(
    "time", [{}, {"lastTransitionTime": "yesterday"}, {"lastTransitionTime": None}]
)
def test_an_outcome_whose_time_is_spoiled_is_no_news_each_time(time: dict[str, Any]) -> None:
    inventory = Inventory()
    observer = Observer(inventory, frozenset())
    body = a_job({"type": "Complete", "status": "True", **time})

    found = [observer.seen(Kind.DistTrainJob, body).change for _ in range(2)]

    assert found == [Change.DECISIVE, Change.NOTHING]
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
    observer = Observer(inventory, frozenset())
    body = a_coordinator(finished)

    found = [observer.seen(Kind.Pod, body).change for _ in range(2)]

    assert found == [Change.DECISIVE, Change.NOTHING]
    (pod,) = inventory.at(KEY).pods.values()
    assert pod.outcome is not None
    assert pod.outcome.time == time


@pytest.mark.parametrize(
    "written", ["", "{", "[]", "null", '{"phase": []}', '{"phase": {}}', '{"phase": "Stopped"}']
)
def test_what_is_no_outcome_is_none(written: str) -> None:
    assert outcomes.from_annotation(written, CREATED) is None
    assert outcomes.from_termination(written, ENDED) is None


@pytest.mark.parametrize(
    "spoiled",
    [
        {},
        {"type": "Complete"},
        {"type": "Complete", "status": True},
        {"type": [], "status": "True"},
    ],
)
def test_a_condition_that_tells_of_no_end_is_none(spoiled: dict[str, Any]) -> None:
    assert parsing.job(a_job(spoiled), report.FIELDS).outcome is None
