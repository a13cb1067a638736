from datetime import timedelta

import pytest

from builders import operator_jobs
from builders.operator_jobs import NOW
from disttrain_operator.policies import deadlines

LATER = NOW + timedelta(seconds=100)
SPEC = operator_jobs.context(activeDeadlineSeconds=60, pendingDeadlineSeconds=30).job.spec


@pytest.mark.parametrize(
    ("begun", "reason", "field"),
    [
        (False, "PendingDeadlineExceeded", "spec.pendingDeadlineSeconds (30)"),
        (True, "DeadlineExceeded", "spec.activeDeadlineSeconds (60)"),
    ],
)
def test_a_job_fails_by_the_deadline_that_passed_first(
    *, begun: bool, reason: str, field: str
) -> None:
    since = deadlines.Since(started=NOW, waits=None if begun else NOW)

    ended = deadlines.exceeded(SPEC, since, LATER)

    assert ended is not None
    assert (ended.reason, ended.time, ended.by_operator) == (reason, LATER, True)
    assert field in ended.message


def test_a_job_whose_coordinator_has_not_started_has_only_the_first_deadline() -> None:
    since = deadlines.Since(started=None, waits=NOW)

    assert deadlines.next_instant(SPEC, since) == NOW + timedelta(seconds=30)
    ended = deadlines.exceeded(SPEC, since, LATER)
    assert ended is not None
    assert ended.reason == "PendingDeadlineExceeded"


def test_while_no_time_runs_no_deadline_passes() -> None:
    since = deadlines.Since(started=None, waits=None)

    assert deadlines.exceeded(SPEC, since, LATER) is None
    assert deadlines.next_instant(SPEC, since) is None
