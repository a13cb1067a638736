"""Following the logs of a job's pods: through restarts and broken connections, to its end."""

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from disttrain.cluster import ages, following, logs, pods, resources
from disttrain.cluster.errors import ClusterError, NotFound, Unreachable, WrongInput
from disttrain.cluster.interface import Object
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.logs import LogLine, Wanted
from disttrain.cluster.resources import PODS

POLL_SECONDS: Final = 1.0
"""How soon a pod that is new, or runs again, is followed."""

_LOOKS_AFTER_THE_END: Final = 5
"""At a container that must run in all of them before its log is asked for again: a kubelet tells
later that it has ended, and by then another may write the log."""

_MOST_WAITING: Final = 10_000
"""Lines that nobody has read yet; whoever reads slowly slows the connections down."""


def follow(jobs: Jobs, job: Object, wanted: Wanted) -> Iterator[LogLine]:
    """Lines of all wanted pods as they come, until the job has ended and all is said.

    Raises WrongInput if more logs are wanted than may be open; of pods that come later, some wait.
    """
    followed = _Followed(jobs, wanted)
    metadata = job["metadata"]
    while True:
        over = _is_over(jobs, metadata["name"], metadata["uid"])
        present = _present(jobs, job, wanted)
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
    """One thread for each life of a container, which ends with it."""

    jobs: Jobs
    wanted: Wanted
    lines: "queue.Queue[LogLine]" = field(default_factory=lambda: queue.Queue(_MOST_WAITING))
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    """Of logs that are open, by the life of the container."""
    lives: set[str] = field(default_factory=set)
    """Those that are or were followed."""
    is_first: bool = True

    def begin(self, present: dict[str, Object] | None) -> None:
        """Follow the containers that were not followed yet; raises WrongInput for too many."""
        self._forget_ended()
        if present is None:
            return
        new = {life: pod for life, pod in present.items() if life not in self.lives}
        if self.is_first and len(new) > self.wanted.most_open:
            raise WrongInput(_too_many(len(new), self.wanted.most_open))
        # Of a life that begins while somebody looks on, everything is new.
        wanted = self.wanted if self.is_first else replace(self.wanted, tail=None)
        self.is_first = False
        for life, pod in list(new.items())[: self.wanted.most_open - len(self.threads)]:
            self.lives.add(life)
            # A daemon: at Ctrl-C nobody waits for a log that is silent.
            given = (pod["metadata"]["name"], life, wanted)
            self.threads[life] = threading.Thread(target=self._follow, args=given, daemon=True)
            self.threads[life].start()

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
        return self.lives >= present.keys() and not present.keys() & self.threads.keys()

    def _forget_ended(self) -> None:
        self.threads = {life: each for life, each in self.threads.items() if each.is_alive()}

    def _follow(self, pod: str, life: str, wanted: Wanted) -> None:
        last: LogLine | None = None
        while True:
            query, broke = {"follow": "true"}, False
            if last is not None:
                query["sinceTime"] = last.stamp
            try:
                with self.jobs.api.lines(logs.request(self.jobs, pod, wanted, query)) as lines:
                    for line in (logs.parse_line(pod, each) for each in lines):
                        if logs.is_new(line, last):
                            last = line
                            self.lines.put(line)
            except Unreachable:
                broke = True
            except ClusterError:
                return
            # What was missed of a log that broke is asked for, whatever has become of who wrote it.
            if not (self._container(pod, life, wanted) if broke else self._runs(pod, life, wanted)):
                return

    def _runs(self, pod: str, life: str, wanted: Wanted) -> bool:
        """Whether the pod's container goes on though its log has ended.

        An API server or a kubelet that is restarted ends logs as if there were no more to say.
        """
        looks = (self._container(pod, life, wanted) for _ in range(_LOOKS_AFTER_THE_END))
        return all("running" in (own.get("state") or {}) for own in looks)

    def _container(self, pod: str, life: str, wanted: Wanted) -> Object:
        """Wait for the API server; the status of the pod's container then, if it is still this."""
        while True:
            time.sleep(POLL_SECONDS)
            try:
                found = self.jobs.api.call(resources.get(PODS, self.jobs.namespace, pod))
            except Unreachable:
                continue
            except ClusterError:
                return {}
            return _own(found, wanted) if _life(found, wanted) == life else {}


def _present(jobs: Jobs, job: Object, wanted: Wanted) -> dict[str, Object] | None:
    """The wanted pods that have begun, by the life of their container; None: nobody answers."""
    try:
        found = logs.chosen(jobs, job, wanted)
    except Unreachable:
        return None
    except NotFound:
        # The one pod that is wanted: it may come again, and the job will end.
        return {}
    return {life: pod for pod in found if (life := _life(pod, wanted))}


def _life(pod: Object, wanted: Wanted) -> str:
    """What tells a container from the one that runs in its place later; empty before it began."""
    return str(_own(pod, wanted).get("containerID") or "")


def _own(pod: Object, wanted: Wanted) -> Object:
    return pods.container(pod.get("status") or {}, wanted.container)


def _is_over(jobs: Jobs, name: str, uid: str) -> bool:
    try:
        job = jobs.again(name, uid)
    except Unreachable:
        return False
    except NotFound:
        return True
    return following.look(job, ages.now()).ended is not None


def _too_many(number: int, most: int) -> str:
    return (
        f"{number} logs would be followed at once, and at most {most} may; choose a role or a pod, "
        "or allow more with --max-log-requests"
    )
