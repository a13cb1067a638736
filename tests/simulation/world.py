"""What outlives the simulated processes: time, the network, the job's folder, what was pushed."""

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from builders import placements
from disttrain.coordinator.errors import CoordinatorError
from disttrain.groups.errors import GroupLost
from disttrain.job import defaults
from disttrain.job.names import Role
from disttrain.job.spec import DistTrainJob
from disttrain.launch.config import LaunchConfig
from disttrain.parameter_server.errors import Fenced, RequestRefused
from disttrain.state.vector import Vector
from disttrain.telemetry.exporter import Health
from disttrain.telemetry.metrics import Histogram
from disttrain.transport.config import Limits, TransportConfig, TransportKind
from disttrain.transport.header import Role as TransportRole
from disttrain.transport.in_memory import InMemoryTransport, Network
from disttrain.transport.virtual_time import Killed, VirtualThread

T = TypeVar("T")

JOB_UID = "simulated"
COORDINATOR = "coordinator"
"""Where members look for it."""

TICK_SECONDS = 0.25
"""Between two looks of a process at what is due. Messages end its wait."""

Range = tuple[int, int, int]
"""Lease, first, end: offsets within the lease."""


@dataclass(frozen=True, slots=True)
class PushName:
    """One update of one incarnation of a replica."""

    sender: int
    incarnation: int
    sequence: int


class Difference(NamedTuple):
    """What a push of local steps is of."""

    fragment: int
    ranges: tuple[Range, ...]
    """One for each step."""

    @property
    def samples(self) -> int:
        return sum(end - first for _, first, end in self.ranges)


def accuracy(values: NDArray[np.floating[Any]]) -> float:
    """Of a model: one more update may make it much better or worse."""
    return random.Random(values.tobytes()).random()


@dataclass(slots=True)
class World:
    """Everything that is not inside a process."""

    network: Network
    folder: Path
    job: DistTrainJob
    samples: int
    parameters: int = 100
    push_every: int = 1
    queue: int = 16
    """Messages to one peer that wait on each side of a connection."""
    step_seconds: float = 0.2
    write_seconds: float = 0.2
    """For a piece of a checkpoint, at most."""
    start: float = 0.0
    """What each parameter is at first."""
    rate: float = 1.0
    """What a chunk of a push takes from each of its elements."""
    resume_from: Path | None = None
    checkpoint_failure: float = 0.0
    commit_crash: float = 0.0
    """That the coordinator dies when a checkpoint is there, and before it notes that."""
    pushed: dict[PushName, tuple[Range, ...]] = field(default_factory=dict)
    differences: dict[PushName, Difference] = field(default_factory=dict)
    """Of the same pushes, where they are such."""
    cuts: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Checkpoint, shard -> the incarnation that wrote it, and how many records it had written by
    then."""
    violations: list[str] = field(default_factory=list)
    incarnations: int = 0
    processes: dict[int, "Incarnation"] = field(default_factory=dict)
    """Every one that there was, by its number."""
    formed: dict[tuple[int, ...], Any] = field(default_factory=dict)
    """Groups of processes that have met."""

    @property
    def chance(self) -> random.Random:
        return self.network.chance

    @property
    def now(self) -> float:
        return self.network.time.now

    @property
    def vector(self) -> Vector:
        """What is trained."""
        of_a_batch = self.job.spec.strategy.sandblaster is not None
        return placements.PARAMETERS_FLOAT64 if of_a_batch else placements.PARAMETERS

    @property
    def computed_on(self) -> Vector:
        """What replicas fetch to train with."""
        return self.vector.beside(defaults.first_stage(self.job.spec).strategy.rule.computes_on)

    @property
    def numbers(self) -> type[np.float32 | np.float64]:
        """Of which the parameters are."""
        return np.float64 if self.vector == placements.PARAMETERS_FLOAT64 else np.float32

    def config(self, role: Role, index: int, place: str = "") -> LaunchConfig:
        return LaunchConfig(
            job=self.job,
            job_uid=JOB_UID,
            role=role,
            index=index,
            run_folder=self.folder,
            task_folder=self.folder,
            coordinator_address=COORDINATOR,
            transport=TransportKind.TCP,
            threads=1,
            resume_from=self.resume_from,
            place=place,
        )


class Incarnation:
    """One incarnation of a process: its connections, its threads, and its end."""

    def __init__(self, world: World, role: TransportRole) -> None:
        world.incarnations += 1
        self.pid = world.incarnations
        world.processes[self.pid] = self
        self.world = world
        self.role = role
        kind = TransportKind.TCP
        limits = Limits(send_queue=world.queue)
        config = TransportConfig(kind=kind, job_uid=JOB_UID, role=role, limits=limits)
        self.transport = InMemoryTransport(world.network, config)
        self.is_alive = True
        self.is_over = False
        """It was told to end."""
        self._threads: list[VirtualThread] = []

    def run(self, body: Callable[[], None]) -> None:
        """A thread of the process; it dies as a whole when one of them raises what ends it."""

        def guarded() -> None:
            try:
                body()
            except (CoordinatorError, Fenced, GroupLost):
                self.kill()
            except RequestRefused as error:
                self.world.violations.append(str(error))
                self.kill()

        self._threads = [thread for thread in self._threads if not thread.is_over]
        self._threads.append(self.world.network.time.start(guarded))

    def kill(self) -> None:
        """As by kill -9."""
        self.is_alive = False
        self.transport.close()
        for thread in self._threads:
            self.world.network.time.kill(thread)

    def die(self) -> None:
        """The same, of the thread that runs."""
        self.kill()
        raise Killed

    def pause(self, seconds: float) -> None:
        for thread in self._threads:
            thread.paused_until = self.world.now + seconds

    def end(self) -> None:
        """It has done what it was told, and leaves."""
        self.is_over = True


class InTurn:
    """As an executor, or `Background`, of one thread: one call after the other."""

    def __init__(self, incarnation: Incarnation, done: Callable[[], None] = lambda: None) -> None:
        self.incarnation = incarnation
        self._done = done
        self._calls: deque[Callable[[], None]] = deque()
        self._runs = False

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def carry_out() -> None:
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)
            self._done()

        self._calls.append(carry_out)
        if not self._runs:
            self._runs = True
            self.incarnation.run(self._run)
        return future

    def _run(self) -> None:
        while self._calls:
            self._calls.popleft()()
        self._runs = False


class _Silent(SimpleNamespace):
    """Metrics, or reports to people, that nobody reads."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *_, **__: None


def silent() -> Any:
    return _Silent(
        address="",
        health=Health(),
        checkpoint_seconds=Histogram(),
        blocking_seconds=Histogram(),
        checkpoint_failures=0,
    )


def as_any(thing: object) -> Any:
    return cast(Any, thing)
