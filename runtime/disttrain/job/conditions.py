"""Conditions of a job, as metav1.Condition has them."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from disttrain.job.section import WholeNumber
from disttrain.job.status_section import StatusSection, Time


class ConditionType(StrEnum):
    """What can be true of a job. `kubectl wait --for=condition=Complete` waits for one."""

    SUSPENDED = "Suspended"
    """No process runs, because the manifest says so."""
    PARAMETERS_AVAILABLE = "ParametersAvailable"
    """All shards serve."""
    REPLICAS_AVAILABLE = "ReplicasAvailable"
    """All wanted replicas have joined."""
    DEGRADED = "Degraded"
    """Something needs a person, or training goes on with less than was asked for."""
    COMPLETE = "Complete"
    """The job has ended well; nothing is started again."""
    FAILED = "Failed"
    """The job has ended badly; nothing is started again."""


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    """It holds."""
    FALSE = "False"
    """It does not hold."""
    UNKNOWN = "Unknown"
    """Nobody knows yet."""


class Condition(StatusSection):
    """One condition; there is at most one of each type."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What the condition is about, such as Complete."""

    status: ConditionStatus
    """Whether it holds."""

    reason: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    ]
    """Why, in one word for programs."""

    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, for people, and what to do."""

    last_transition_time: Time
    """When `status` last changed."""

    observed_generation: WholeNumber | None = None
    """The generation of the spec that the condition was made from."""
