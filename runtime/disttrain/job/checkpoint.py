"""Where and how often the state of a job is written."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from disttrain.job.section import Count, Positive, Section


def _is_local(uri: str) -> str:
    scheme, separator, _ = uri.partition("://")
    if not separator or scheme == "file":
        return uri
    raise PydanticCustomError(
        "not_local", "must be a path or a file:// uri, got '{uri}'", {"uri": uri}
    )


class Checkpoint(Section):
    """Checkpoints: the parameters, the optimizer's state and the coordinator's ledger."""

    uri: Annotated[str, Field(min_length=1), AfterValidator(_is_local)] = "checkpoints/"
    """Folder of the checkpoints: a path, relative to the output folder, or a file:// uri."""

    every_seconds: Positive = 60.0
    """Seconds between two checkpoints."""

    keep_last: Count = 3
    """Complete checkpoints that are kept; older ones are deleted."""
