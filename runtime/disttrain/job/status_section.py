"""What parts of a status are made of: what all have in common, kinds of values, conditions.

Conditions are as metav1.Condition has them.
"""

import math
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from disttrain.job.section import WholeNumber

LONGEST_TEXT = 1024
"""Characters of a reason, a name or a path."""

LONGEST_LOG_TAIL = 2048
"""Characters of a log that a status keeps; ten of them stay far below what an object may hold."""


def _null_if_not_finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shortened(value: object) -> object:
    return value[-LONGEST_LOG_TAIL:] if isinstance(value, str) else value


Number = Annotated[float | None, BeforeValidator(_null_if_not_finite)]
"""A number, or null for NaN, an infinity and what is not known."""

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]

LogTail = Annotated[
    str, BeforeValidator(_shortened), Field(json_schema_extra={"maxLength": LONGEST_LOG_TAIL})
]
"""The end of a log; a longer text loses its beginning."""

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""An instant as in RFC 3339, in UTC: `2026-01-02T03:04:05Z`."""


class StatusSection(BaseModel):
    """A mapping of the status. Unknown fields are passed over: a newer release may write them."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )

    def as_json(self) -> dict[str, JsonValue]:
        """Return the mapping as the API server takes it, without what is not known."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


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
