"""The logs of a job's pods as far as they are written, and which of them are wanted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from disttrain.cluster import pods
from disttrain.cluster.errors import NotFound
from disttrain.cluster.interface import Object, Request, Verb
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.resources import PODS
from disttrain.job.cluster_names import CONTAINER

_DIGITS: Final = 9
"""Digits of a fraction of a second; trailing zeros are left out of what arrives."""
MOST_OPEN: Final = 64
"""Logs that are followed at once, unless somebody asks for more: each is a connection through the
API server to a node."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a pod's log with its time stamp, as `timestamps=true` gives it."""

    pod: str
    stamp: str
    text: str

    @property
    def key(self) -> str:
        """The time stamp with all digits, so that texts compare as instants do."""
        whole, _, fraction = self.stamp.removesuffix("Z").partition(".")
        return f"{whole}.{fraction:0<{_DIGITS}}"


def parse_line(pod: str, line: str) -> LogLine:
    stamp, _, text = line.partition(" ")
    return LogLine(pod, stamp, text)


def is_new(line: LogLine, last: LogLine | None) -> bool:
    return last is None or line.key > last.key


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which logs, and how much of them."""

    roles: tuple[str, ...] = ()
    """Of these roles only; empty: of all."""
    pod: str | None = None
    """Of this pod only."""
    container: str = CONTAINER
    tail: int | None = None
    """Latest lines of each pod; None: all."""
    previous: bool = False
    """Of the life of the container before the present one."""
    most_open: int = MOST_OPEN
    """Logs that may be followed at once."""


def chosen(jobs: Jobs, job: Object, wanted: Wanted) -> list[Object]:
    """The pods whose logs are wanted, the coordinator first. Raises NotFound for another pod."""
    found = {pod["metadata"]["name"]: pod for pod in jobs.pods(job)}
    if wanted.pod is not None and wanted.pod not in found:
        name = job["metadata"]["name"]
        there = ", ".join(found) or "none"
        message = f"job {name} has no pod {wanted.pod}; its pods: {there}"
        raise NotFound(message)
    return [
        found[each.name]
        for each in pods.in_order(list(found.values()))
        if wanted.pod in {None, each.name} and (not wanted.roles or each.role in wanted.roles)
    ]


def read(jobs: Jobs, pod: Object, wanted: Wanted) -> Iterator[LogLine]:
    """The log of one pod as far as it is written. Raises ClusterError, Unreachable."""
    name = pod["metadata"]["name"]
    text = jobs.api.text(request(jobs, name, wanted, {}))
    yield from (parse_line(name, line) for line in text.splitlines())


def request(jobs: Jobs, pod: str, wanted: Wanted, query: dict[str, str]) -> Request:
    asked = {"container": wanted.container, "timestamps": "true", **query}
    if wanted.tail is not None and "sinceTime" not in query:
        asked["tailLines"] = str(wanted.tail)
    if wanted.previous:
        asked["previous"] = "true"
    path = PODS.path(jobs.namespace, pod, "log")
    return Request(verb=Verb.GET, path=path, query=asked, accept="*/*")
