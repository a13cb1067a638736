"""The logs of a job's pods: what is there, or followed through restarts and broken connections."""

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from disttrain.cluster import ages, following, log_lines, pods, resources
from disttrain.cluster.errors import ClusterError, NotFound, Unreachable, WrongInput
from disttrain.cluster.interface import Object, Request, Verb
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.log_lines import LogLine
from disttrain.cluster.resources import PODS
from disttrain.job.cluster_names import CONTAINER

POLL_SECONDS: Final = 1.0
"""How soon a pod that is new, or runs again, is followed."""

_MOST_WAITING: Final = 10_000
"""Lines that nobody has read yet; whoever reads slowly slows the connections down."""


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


@dataclass(frozen=True, slots=True)
class Line:
    """A line and the pod it comes from."""

    pod: str
    line: LogLine


def chosen(jobs: Jobs, job: Object, wanted: Wanted) -> list[Object]:
    """The pods whose logs are wanted, the coordinator first. Raises NotFound for another pod."""
    found = {pod["metadata"]["name"]: pod for pod in jobs.pods(job)}
    if wanted.pod is not None and wanted.pod not in found:
        name = job["metadata"]["name"]
        there = ", ".join(found) or "none"
        message = f"job {name} has no pod {wanted.pod}; its pods: {there}"
        raise NotFound(message)
    ordered = (each.name for each in pods.in_order(list(found.values())))
    return [found[name] for name in ordered if _is_wanted(found[name], wanted)]


def read(jobs: Jobs, pod: Object, wanted: Wanted) -> Iterator[LogLine]:
    """The log of one pod as far as it is written. Raises ClusterError, Unreachable."""
    text = jobs.api.text(_request(jobs, pod["metadata"]["name"], wanted, {}))
    yield from map(log_lines.parse, text.splitlines())


def follow(jobs: Jobs, job: Object, wanted: Wanted) -> Iterator[Line]:
    """Lines of all wanted pods as they come, until the job has ended and all is said."""
    followed = _Followed(jobs, wanted)
    metadata = job["metadata"]
    while True:
        over = _is_over(jobs, metadata["name"], metadata["uid"])
        try:
            present = chosen(jobs, job, wanted)
        except Unreachable:
            present = []
        followed.begin(present)
        yield from followed.arrived(POLL_SECONDS)
        if over and followed.is_quiet():
            yield from followed.arrived(0)
            return


@dataclass(slots=True)
class _Followed:
    """One thread for each life of a container, which ends with it."""

    jobs: Jobs
    wanted: Wanted
    lines: "queue.Queue[Line]" = field(default_factory=lambda: queue.Queue(_MOST_WAITING))
    threads: list[threading.Thread] = field(default_factory=list)
    lives: set[str] = field(default_factory=set)
    is_first: bool = True

    def begin(self, present: list[Object]) -> None:
        """Follow the containers that were not followed yet and have begun."""
        # Of a life that begins while somebody looks on, everything is new.
        wanted = self.wanted if self.is_first else replace(self.wanted, tail=None)
        self.is_first = False
        for pod in present:
            life = _life(pod, wanted)
            if life and life not in self.lives:
                self.lives.add(life)
                # A daemon: at Ctrl-C nobody waits for a log that is silent.
                given = (pod["metadata"]["name"], life, wanted)
                thread = threading.Thread(target=self._follow, args=given, daemon=True)
                self.threads.append(thread)
                thread.start()

    def arrived(self, seconds: float) -> Iterator[Line]:
        """Lines that come within a time, as they come."""
        try:
            yield self.lines.get(timeout=seconds) if seconds else self.lines.get_nowait()
            while True:
                yield self.lines.get_nowait()
        except queue.Empty:
            return

    def is_quiet(self) -> bool:
        """Whether no log is open any more."""
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        return not self.threads

    def _follow(self, pod: str, life: str, wanted: Wanted) -> None:
        last: LogLine | None = None
        while True:
            query = {"follow": "true"}
            if last is not None:
                query["sinceTime"] = last.stamp
            try:
                with self.jobs.api.lines(_request(self.jobs, pod, wanted, query)) as lines:
                    for line in map(log_lines.parse, lines):
                        if log_lines.is_new(line, last):
                            last = line
                            self.lines.put(Line(pod, line))
                return
            except Unreachable:
                # The connection broke; what was missed is asked for again.
                if not self._is_still(pod, life, wanted):
                    return
            except ClusterError:
                return

    def _is_still(self, pod: str, life: str, wanted: Wanted) -> bool:
        """Wait for the API server; whether the pod's container is the same one then."""
        while True:
            time.sleep(POLL_SECONDS)
            try:
                found = self.jobs.api.call(resources.get(PODS, self.jobs.namespace, pod))
            except Unreachable:
                continue
            except ClusterError:
                return False
            return _life(found, wanted) == life


def require_way(wanted: Wanted, *, following_too: bool) -> None:
    """Raise WrongInput for what cannot be wanted together."""
    if wanted.previous and following_too:
        message = "--previous is the log of a life that has ended; it cannot be followed"
        raise WrongInput(message)


def _life(pod: Object, wanted: Wanted) -> str:
    """What tells a container from the one that runs in its place later; empty before it began."""
    container = pods.container(pod.get("status") or {}, wanted.container)
    return str(container.get("containerID") or "")


def _is_wanted(pod: Object, wanted: Wanted) -> bool:
    found = pods.read(pod)
    named = wanted.pod is None or found.name == wanted.pod
    return named and (not wanted.roles or found.role in wanted.roles)


def _is_over(jobs: Jobs, name: str, uid: str) -> bool:
    try:
        job = jobs.get(name)
    except Unreachable:
        return False
    except NotFound:
        return True
    return job["metadata"]["uid"] != uid or following.look(job, ages.now()).ended is not None


def _request(jobs: Jobs, pod: str, wanted: Wanted, query: dict[str, str]) -> Request:
    asked = {"container": wanted.container, "timestamps": "true", **query}
    if wanted.tail is not None and "sinceTime" not in query:
        asked["tailLines"] = str(wanted.tail)
    if wanted.previous:
        asked["previous"] = "true"
    path = PODS.path(jobs.namespace, pod, "log")
    return Request(verb=Verb.GET, path=path, query=asked, accept="*/*")
