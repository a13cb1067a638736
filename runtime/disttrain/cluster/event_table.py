"""The events of a job and of all that belongs to it, in the order of time."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

from disttrain.cluster import ages, resources, tables
from disttrain.cluster import jobs as cluster_jobs
from disttrain.cluster.errors import Unreachable
from disttrain.cluster.interface import Object
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.resources import EVENTS
from disttrain.job import cluster_names
from disttrain.job.spec import KIND

PAUSE_SECONDS: Final = 2.0
_HEAD: Final = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
_WIDTHS: Final = (9, 7, 20, 40, 0)
"""Of lines that are printed one by one."""


def read(jobs: Jobs, name: str) -> list[Object]:
    """The events of one job, the latest last. Raises ClusterError, Unreachable."""
    belongs = of_job(name)
    found = cluster_jobs.items(jobs.api, resources.listing(EVENTS, jobs.namespace))
    return sorted((each for each in found if belongs(each)), key=last_seen)


def watch(jobs: Jobs, name: str, shown: Sequence[Object]) -> Iterator[str]:
    told = {_version(each) for each in shown}
    while True:
        time.sleep(PAUSE_SECONDS)
        try:
            found = read(jobs, name)
        except Unreachable:
            continue
        news = [each for each in found if _version(each) not in told]
        # What is no longer there does not come again.
        told = {_version(each) for each in found}
        yield from (tables.line(_row(each, ages.now()), _WIDTHS) for each in news)


def of_job(name: str) -> Callable[[Object], bool]:
    """A test whether an event is about a job: itself, what was made for it, or a pod of it."""
    own = {
        cluster_names.service(name),
        cluster_names.shard_set(name),
        cluster_names.replica_set(name),
        cluster_names.coordinator_job(name),
        cluster_names.checkpoints_claim(name),
    }
    # A pod that is gone has no labels to look at any more, only its name.
    ending = "[a-z0-9]+"
    pods = re.compile(
        f"{re.escape(cluster_names.shard_set(name))}-[0-9]+"
        f"|{re.escape(cluster_names.coordinator_job(name))}-0-{ending}"
        f"|{re.escape(cluster_names.replica_set(name))}-{ending}"
    )

    def belongs(event: Object) -> bool:
        about = event["involvedObject"]
        found = str(about.get("name") or "")
        if about.get("kind") == KIND:
            return found == name
        return found in own or pods.fullmatch(found) is not None

    return belongs


def text(events: Sequence[Object], now: datetime) -> str:
    return tables.text([list(_HEAD), *(_row(each, now) for each in events)])


def last_seen(event: Object) -> str:
    """When an event was last seen, in RFC 3339; whoever wrote it chose one of several fields."""
    series = event.get("series") or {}
    moments = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return str(next((each for each in moments if each), ""))


def _row(event: Object, now: datetime) -> list[str]:
    about = event["involvedObject"]
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    times = f" (x{count})" if count > 1 else ""
    values = (
        ages.since(last_seen(event), now) + times,
        event.get("type"),
        event.get("reason"),
        f"{str(about.get('kind')).lower()}/{about.get('name')}",
        str(event.get("message") or "").strip(),
    )
    return [tables.printable(value) for value in values]


def _version(event: Object) -> tuple[str, str]:
    return event["metadata"]["uid"], event["metadata"]["resourceVersion"]
