"""What every part of a status has in common, and the kinds of values in it."""

import math
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

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
