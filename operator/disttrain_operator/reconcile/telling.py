"""Telling people of a job by an Event, each once."""

from contextlib import suppress
from typing import Any

from disttrain_operator.cluster.client import Client
from disttrain_operator.errors import Conflict, Forbidden
from disttrain_operator.kinds import Kind


async def tell(client: Client, event: dict[str, Any]) -> None:
    """Make an Event, unless it was told before or its namespace is going away."""
    with suppress(Conflict, Forbidden):
        await client.create(Kind.Event, event)
