"""What a job's status said until now. Somebody else may have spoiled it."""

from typing import Any

from pydantic import ValidationError

from disttrain.job.conditions import Condition
from disttrain.job.status import JobStatus


def status(written: dict[str, Any]) -> JobStatus:
    """The status as it stands; one that somebody else spoiled counts as none."""
    try:
        return JobStatus.model_validate(written)
    except ValidationError:
        return JobStatus()


def conditions(written: dict[str, Any]) -> tuple[Condition, ...]:
    return status(written).conditions
