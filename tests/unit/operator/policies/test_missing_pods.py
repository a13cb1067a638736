"""When Events of a workload are read: when it lacks pods for long and nothing else says why."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders.operator_jobs import NOW, child
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import EndPhase
from disttrain_operator.policies import missing_pods
from disttrain_operator.policies.missing_pods import Lack

SHARDS = child(Kind.StatefulSet, wanted=2, remaining=1)


def after(seconds: float) -> Any:
    return NOW + timedelta(seconds=seconds)


def test_a_workload_is_asked_about_once_its_controller_had_time() -> None:
    lacks = missing_pods.lacks([SHARDS], {}, NOW)

    assert missing_pods.next_instant([SHARDS], lacks) == after(10)
    assert missing_pods.unexplained([SHARDS], lacks, after(9.9)) == ()
    assert missing_pods.unexplained([SHARDS], lacks, after(10)) == (SHARDS.uid,)
    assert missing_pods.lacks([SHARDS], lacks, after(10)) == lacks, "since it was seen first"
    assert missing_pods.lacks([replace(SHARDS, remaining=2)], lacks, after(10)) == {}


@pytest.mark.parametrize(
    "known",
    [
        child(Kind.ReplicaSet, wanted=2, remaining=1),
        replace(SHARDS, trouble="told by its status"),
        replace(SHARDS, wanted=1),
        replace(SHARDS, deleting=True),
        child(Kind.Job, wanted=1, remaining=0, ended=EndPhase.FAILED),
    ],
    ids=["has a condition", "is explained", "lacks none", "is deleted", "has ended"],
)
def test_nothing_is_asked_about_what_needs_no_explanation(known: Any) -> None:
    lacks = missing_pods.lacks([known], {}, NOW)

    assert missing_pods.next_instant([known], lacks) is None


def test_the_longer_pods_are_missing_the_rarer_is_the_question() -> None:
    lack, waits = Lack(NOW, after(10)), []
    for _ in range(8):
        due = missing_pods.next_instant([SHARDS], {SHARDS.uid: lack})
        assert due is not None
        assert lack.asked is not None
        waits.append((due - lack.asked).total_seconds())
        lack = replace(lack, asked=due)

    assert waits == [60, 70, 140, 280, 560, 600, 600, 600]


def test_the_newest_event_counts_and_none_says_nothing() -> None:
    events: list[dict[str, Any]] = [
        {"message": "first", "lastTimestamp": "2026-03-01T12:00:00Z"},
        {"message": "last", "eventTime": "2026-03-01T12:00:02.000000Z"},
        {"message": "odd", "lastTimestamp": 7},
    ]

    assert missing_pods.newest(events) == "last"
    assert missing_pods.newest([]) == ""
