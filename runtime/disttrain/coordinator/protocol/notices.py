"""Requests that lie in files for the coordinator. Whoever can write there is of the run.

`Remove` never comes by the network, where a joiner could say it of others.
"""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field

from disttrain.coordinator.protocol.fields import Tagged
from disttrain.coordinator.protocol.messages import Leave

REMOVED = "removed by the run's owner"
"""Why a member is none any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remove(Tagged, kind="remove"):
    """The run's owner takes a joiner away for good: it is fenced, and never a member again."""

    place: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,252}$")]
    """Its own, whichever incarnation is there when this is read."""


Notice: TypeAlias = Annotated[Leave | Remove, Field(discriminator="kind")]
