"""Telling people of a job by Events."""

import logging
from contextlib import suppress
from datetime import datetime
from typing import Any

from disttrain.errors import DistTrainError
from disttrain_operator import untrusted
from disttrain_operator.cluster.client import Client
from disttrain_operator.errors import Conflict, Forbidden, NotFound
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import JobRecord
from disttrain_operator.reconcile import events
from disttrain_operator.reconcile.events import EventText

LOG = logging.getLogger(__name__)


async def tell(client: Client, event: dict[str, Any]) -> None:
    """Make an Event, or count it once more; not in a namespace that is going away."""
    with suppress(Forbidden, NotFound):
        try:
            await client.create(Kind.Event, event)
        except Conflict:
            await _repeat(client, event)


async def tell_deed(client: Client, job: JobRecord, deed: EventText, now: datetime) -> None:
    """Tell what was done, which an Event that cannot be written does not undo."""
    about = {"namespace": job.key.namespace, "job": job.key.name, "reason": deed.reason}
    LOG.info("%s: %s", job.key, deed.message, extra=about)
    if not deed.is_told:
        return
    try:
        await tell(client, events.of_deed(job, deed, now))
    except DistTrainError as error:
        LOG.warning("%s: no Event tells of this: %s", job.key, error, extra=about)


async def _repeat(client: Client, event: dict[str, Any]) -> None:
    metadata = event["metadata"]
    place = (Kind.Event, metadata["namespace"], metadata["name"])
    known = await client.get(*place)
    told = {name: event[name] for name in ("message", "lastTimestamp")}
    count = max(1, untrusted.number(known.get("count"))) + 1
    await client.merge(*place, {**told, "count": count})
