from datetime import UTC, datetime
from typing import Any

import pytest

from disttrain_operator.kinds import Kind
from disttrain_operator.observed import parsing
from disttrain_operator.observed.records import ChildRecord

FIRST = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:10:00Z"
RESUMED = [{"type": "Suspended", "status": "False"}]


def seen(status: dict[str, Any], **annotations: str) -> ChildRecord:
    metadata = {"name": "digits-coordinator", "annotations": annotations}
    return parsing.child(Kind.Job, {"metadata": metadata, "spec": {}, "status": status})


@pytest.mark.parametrize(
    ("status", "annotations", "started"),
    [
        ({"startTime": FIRST}, {}, FIRST),
        ({"startTime": LATER}, {parsing.STARTED: FIRST}, FIRST),
        ({}, {parsing.STARTED: FIRST}, FIRST),
        ({"startTime": LATER, "conditions": RESUMED}, {parsing.STARTED: FIRST}, LATER),
        ({"startTime": LATER}, {parsing.STARTED: "nonsense"}, LATER),
        ({}, {}, None),
    ],
    ids=["plain", "made anew", "just made anew", "made anew and resumed", "spoiled", "new"],
)
def test_a_job_that_was_made_anew_started_with_the_first(
    status: dict[str, Any], annotations: dict[str, str], started: str | None
) -> None:
    expected = None if started is None else datetime.fromisoformat(started).astimezone(UTC)
    assert seen(status, **annotations).started == expected


def test_its_failed_pods_are_counted() -> None:
    assert seen({"failed": 3}).failed == 3
    assert seen({}).failed == 0
