"""The status: what is written, what is passed over, and who writes which field."""

import math

import pytest
from pydantic import ValidationError

from disttrain.job.names import Role
from disttrain.job.status import (
    COORDINATOR_FIELDS,
    Failure,
    JobStatus,
    TrainingStatus,
)
from disttrain.job.status_section import LONGEST_LOG_TAIL, Condition, ConditionStatus

NOON = "2026-01-02T12:00:00Z"


def a_death(pod: str, log_tail: str = "") -> Failure:
    return Failure(time=NOON, role=Role.REPLICA, pod=pod, exit_code=137, log_tail=log_tail)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_measure_that_is_no_number_becomes_null(value: float) -> None:
    training = TrainingStatus(loss=value, metrics={"accuracy": value, "recall": 0.5})
    assert training.loss is None
    assert training.as_json() == {"metrics": {"accuracy": None, "recall": 0.5}}


def test_a_status_is_written_as_the_api_server_reads_it() -> None:
    condition = Condition(
        type="Complete",
        status=ConditionStatus.TRUE,
        reason="EpochsReached",
        message="done",
        last_transition_time=NOON,
        observed_generation=2,
    )
    status = JobStatus(observed_generation=2, conditions=(condition,), ready_replicas=3)
    written = status.as_json()
    assert written["readyReplicas"] == 3
    assert written["conditions"] == [
        {
            "type": "Complete",
            "status": "True",
            "reason": "EpochsReached",
            "message": "done",
            "lastTransitionTime": NOON,
            "observedGeneration": 2,
        }
    ]
    assert JobStatus.model_validate(written) == status


def test_what_a_newer_release_writes_is_passed_over() -> None:
    assert JobStatus.model_validate({"phase": "Running", "news": {"a": 1}}).phase == "Running"


def test_a_condition_needs_a_reason_of_one_word() -> None:
    with pytest.raises(ValidationError, match="reason"):
        Condition.model_validate(
            {"type": "A", "status": "True", "reason": "two words", "lastTransitionTime": NOON}
        )


def test_a_long_log_keeps_its_end() -> None:
    failure = a_death("pod", log_tail="x" * 5000 + "the reason")
    assert len(failure.log_tail) == LONGEST_LOG_TAIL
    assert failure.log_tail.endswith("the reason")


def test_the_fields_of_the_coordinator_are_fields_of_the_status() -> None:
    known = {field.alias for field in JobStatus.model_fields.values()}
    assert set(COORDINATOR_FIELDS) < known
