"""The logs of a job's pods: which are wanted, as far as they are written, and followed.

Following goes through restarts and broken connections, to the end of the job.
"""

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from disttrain.cluster import following, kubectl_text, pods, resources
from disttrain.cluster.errors import ClusterError, NotFound, Unreachable, WrongInput
from disttrain.cluster.interface import Object, Request, Verb
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.resources import PODS
from disttrain.job.cluster_names import CONTAINER

_DIGITS: Final = 9
"""Digits of a fraction of a second; trailing zeros are left out of what arrives."""
MOST_OPEN: Final = 64
"""Logs that are followed at once, unless somebody asks for more: each is a connection through the
API server to a node."""
POLL_SECONDS: Final = 1.0
"""How soon a pod that is new, or runs again, is followed."""
_CHECKS_AFTER_THE_END: Final = 5
"""Of a container that must run in all of them before its log is asked for again: a kubelet tells
later that it has ended, and by then another may write the log."""
_MOST_WAITING: Final = 10_000
"""Lines that nobody has read yet; whoever reads slowly slows the connections down."""


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
class LogOptions:
    """Which logs, and how much of them."""

    roles: tuple[str, ...] = ()
    """Of these roles only; empty: of all."""
    pod: str | None = None
    """Of this pod only."""
    container: str = CONTAINER
    tail: int | None = None
    """Latest lines of each pod; None: all."""
    previous: bool = False
    """Of the incarnation of the container before the present one."""
    most_open: int = MOST_OPEN
    """Logs that may be followed at once."""


def chosen(jobs: Jobs, job: Object, options: LogOptions) -> list[Object]:
    """The pods whose logs are wanted, the coordinator first. Raises NotFound for another pod."""
    found = {pod["metadata"]["name"]: pod for pod in jobs.pods(job)}
    if options.pod is not None and options.pod not in found:
        name = job["metadata"]["name"]
        there = ", ".join(found) or "none"
        raise NotFound(f"job {name} has no pod {options.pod}; its pods: {there}")
    return [
        found[each.name]
        for each in pods.in_order(list(found.values()))
        if options.pod in {None, each.name} and (not options.roles or each.role in options.roles)
    ]


def read(jobs: Jobs, pod: Object, options: LogOptions) -> Iterator[LogLine]:
    """The log of one pod as far as it is written. Raises ClusterError, Unreachable."""
    name = pod["metadata"]["name"]
    text = jobs.api.text(request(jobs, name, options, {}))
    yield from (parse_line(name, line) for line in text.splitlines())


def request(jobs: Jobs, pod: str, options: LogOptions, query: dict[str, str]) -> Request:
    asked = {"container": options.container, "timestamps": "true", **query}
    if options.tail is not None and "sinceTime" not in query:
        asked["tailLines"] = str(options.tail)
    if options.previous:
        asked["previous"] = "true"
    path = PODS.path(jobs.namespace, pod, "log")
    return Request(verb=Verb.GET, path=path, query=asked, accept="*/*")


def follow(jobs: Jobs, job: Object, options: LogOptions) -> Iterator[LogLine]:
    """Lines of all wanted pods as they come, until the job has ended and all is said.

    Raises WrongInput if more logs are wanted than may be open; of pods that come later, some wait.
    """
    followed = _Followed(jobs, options)
    metadata = job["metadata"]
    while True:
        over = _is_over(jobs, metadata["name"], metadata["uid"])
        present = _present(jobs, job, options)
        followed.begin(present)
        came = False
        for line in followed.arrived(POLL_SECONDS):
            came = True
            yield line
        if over and not came and followed.has_said_all(present):
            yield from followed.arrived(0)
            return


@dataclass(slots=True)
class _Followed:
    """One thread for each incarnation of a container, which ends with it."""

    jobs: Jobs
    options: LogOptions
    lines: "queue.Queue[LogLine]" = field(default_factory=lambda: queue.Queue(_MOST_WAITING))
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    """Of logs that are open, by the incarnation of the container."""
    incarnations: set[str] = field(default_factory=set)
    """Those that are or were followed."""
    is_first: bool = True

    def begin(self, present: dict[str, Object] | None) -> None:
        """Follow the containers that were not followed yet; raises WrongInput for too many."""
        self._forget_ended()
        if present is None:
            return
        new = {
            incarnation: pod
            for incarnation, pod in present.items()
            if incarnation not in self.incarnations
        }
        if self.is_first and len(new) > self.options.most_open:
            raise WrongInput(_too_many(len(new), self.options.most_open))
        # Of an incarnation that begins while somebody looks on, everything is new.
        options = self.options if self.is_first else replace(self.options, tail=None)
        self.is_first = False
        for incarnation, pod in list(new.items())[: self.options.most_open - len(self.threads)]:
            self.incarnations.add(incarnation)
            # A daemon: at Ctrl-C nobody waits for a log that is silent.
            given = (pod["metadata"]["name"], incarnation, options)
            self.threads[incarnation] = threading.Thread(
                target=self._follow, args=given, daemon=True
            )
            self.threads[incarnation].start()

    def arrived(self, seconds: float) -> Iterator[LogLine]:
        try:
            yield self.lines.get(timeout=seconds) if seconds else self.lines.get_nowait()
            while True:
                yield self.lines.get_nowait()
        except queue.Empty:
            return

    def has_said_all(self, present: dict[str, Object] | None) -> bool:
        """Whether every pod's log has ended, or the pod is gone and its node lost."""
        self._forget_ended()
        if present is None:
            return False
        return self.incarnations >= present.keys() and not present.keys() & self.threads.keys()

    def _forget_ended(self) -> None:
        self.threads = {
            incarnation: each for incarnation, each in self.threads.items() if each.is_alive()
        }

    def _follow(self, pod: str, incarnation: str, options: LogOptions) -> None:
        last: LogLine | None = None
        while True:
            query, broke = {"follow": "true"}, False
            if last is not None:
                query["sinceTime"] = last.stamp
            try:
                with self.jobs.api.lines(request(self.jobs, pod, options, query)) as lines:
                    for line in (parse_line(pod, each) for each in lines):
                        if is_new(line, last):
                            last = line
                            self.lines.put(line)
            except Unreachable:
                broke = True
            except ClusterError:
                return
            # What was missed of a log that broke is asked for, whatever has become of who wrote it.
            if not (
                self._container(pod, incarnation, options)
                if broke
                else self._runs(pod, incarnation, options)
            ):
                return

    def _runs(self, pod: str, incarnation: str, options: LogOptions) -> bool:
        """Whether the pod's container goes on though its log has ended.

        An API server or a kubelet that is restarted ends logs as if there were no more to say.
        """
        checked = (self._container(pod, incarnation, options) for _ in range(_CHECKS_AFTER_THE_END))
        return all("running" in (own.get("state") or {}) for own in checked)

    def _container(self, pod: str, incarnation: str, options: LogOptions) -> Object:
        """Wait for the API server; the status of the pod's container then, if it is still this."""
        while True:
            time.sleep(POLL_SECONDS)
            try:
                found = self.jobs.api.call(resources.get(PODS, self.jobs.namespace, pod))
            except Unreachable:
                continue
            except ClusterError:
                return {}
            return _own(found, options) if _incarnation(found, options) == incarnation else {}


def _present(jobs: Jobs, job: Object, options: LogOptions) -> dict[str, Object] | None:
    """The wanted pods that have begun, by their container's incarnation; None: nobody answers."""
    try:
        found = chosen(jobs, job, options)
    except Unreachable:
        return None
    except NotFound:
        # The one pod that is wanted: it may come again, and the job will end.
        return {}
    return {incarnation: pod for pod in found if (incarnation := _incarnation(pod, options))}


def _incarnation(pod: Object, options: LogOptions) -> str:
    """What tells a container from the one that runs in its place later; empty before it began."""
    return str(_own(pod, options).get("containerID") or "")


def _own(pod: Object, options: LogOptions) -> Object:
    return pods.container(pod.get("status") or {}, options.container)


def _is_over(jobs: Jobs, name: str, uid: str) -> bool:
    try:
        job = jobs.again(name, uid)
    except Unreachable:
        return False
    except NotFound:
        return True
    return following.observe(job, kubectl_text.now()).ended is not None


def _too_many(number: int, most: int) -> str:
    return (
        f"{number} logs would be followed at once, and at most {most} may; choose a role or a pod, "
        "or allow more with --max-log-requests"
    )
