from datetime import timedelta
from typing import Any

import pytest

from builders.operator_jobs import NOW
from disttrain_operator import times
from disttrain_operator.policies import throttle

LATER = NOW + timedelta(seconds=5)


def status(ready: int = 1, phase: str = "Running", **changed: Any) -> dict[str, Any]:
    reason = "Ready" if ready >= 2 else "NotReady"
    available = {
        "type": "ReplicasAvailable",
        "status": str(ready >= 2),
        "reason": reason,
        "message": f"{ready} of 2 replicas",
    }
    other = {
        "type": "Degraded",
        "status": "True",
        "reason": "CannotStart",
        "message": "",
        **changed,
    }
    return {"phase": phase, "readyReplicas": ready, "conditions": [available, other]}


@pytest.mark.parametrize(
    ("after", "due"),
    [
        (status(0), LATER),
        (status(2), LATER),
        (status(0, "Pending"), NOW),
        (status(0, message="another"), NOW),
        (status(0, status="False"), NOW),
    ],
)
def test_only_numbers_wait(after: dict[str, Any], due: Any) -> None:
    assert throttle.due_at(status(1), after, NOW, NOW) == due


def test_a_first_start_waits_and_another_is_written_at_once() -> None:
    started = {**status(1), "startTime": times.text(NOW)}
    again = {**started, "startTime": times.text(LATER)}

    assert throttle.due_at(status(1), started, NOW, NOW) == LATER
    assert throttle.due_at(started, again, NOW, NOW) == NOW


def test_that_a_job_was_accepted_waits_while_others_wait_for_their_objects() -> None:
    def due(after: dict[str, Any], age: float, *, crowded: bool = True) -> float:
        created = NOW - timedelta(seconds=age)
        return (throttle.first_due_at(after, created, NOW, crowded=crowded) - NOW).total_seconds()

    quiet = status(0, "Pending", status="False")
    assert due(quiet, 0) == 10
    assert due(quiet, 57) == 3
    assert due(quiet, 70) == 0
    assert due(quiet, 0, crowded=False) == 0
    assert due(status(0, "Pending"), 0) == 0, "something is wrong with it"
    assert due(status(2, "Running", status="False"), 0) == 0


def test_numbers_are_written_after_a_while_and_at_first() -> None:
    since = LATER + timedelta(seconds=1)
    assert throttle.due_at(status(1), status(0), NOW, since) == since
    assert throttle.due_at(status(1), status(0), None, NOW) == NOW


def test_a_job_that_starts_waits_longest() -> None:
    phases = ("Running", "Complete", "Pending")
    delays = [throttle.interval(status(1), status(2, phase)) for phase in phases]
    assert delays == sorted(delays)
    assert throttle.interval({}, {}) == throttle.interval({}, {"phase": "Failed"})


def test_numbers_of_a_job_that_starts_wait_for_what_they_lead_to() -> None:
    # Neither of these statuses says that all are ready, the third does.
    none, one, all_ready = (status(ready, "Pending") for ready in (0, 1, 2))

    assert throttle.interval(none, one) > throttle.interval(none, all_ready)
    assert throttle.due_at(none, {**none, "startTime": ""}, NOW, NOW) == NOW + throttle.interval(
        none, one
    )


def test_a_spoiled_status_is_written_at_once() -> None:
    assert throttle.due_at({"conditions": [3]}, status(0), NOW, NOW) == NOW
