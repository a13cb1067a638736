"""What outlives the simulated processes: time, the network, the job's folder, what was pushed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from disttrain.coordinator.errors import CoordinatorError
from disttrain.job.names import Role
from disttrain.job.spec import DistTrainJob
from disttrain.launch.config import LaunchConfig
from disttrain.parameter_server.errors import Fenced
from disttrain.telemetry.health import Health
from disttrain.telemetry.metrics import Histogram
from disttrain.transport.config import Limits, TransportConfig, TransportKind
from disttrain.transport.header import Role as TransportRole
from disttrain.transport.in_memory import InMemoryTransport, Network
from disttrain.transport.virtual_time import Killed, VirtualThread

JOB_UID = "simulated"
COORDINATOR = "coordinator"
"""Where members look for it."""

TICK_SECONDS = 0.25
"""Between two looks of a process at what is due. Messages end its wait."""

Range = tuple[int, int, int]
"""Lease, first, end: offsets within the lease."""


@dataclass(frozen=True, slots=True)
class PushName:
    """One update of one life of a replica."""

    sender: int
    incarnation: int
    sequence: int


def accuracy(updates: int) -> float:
    """Of a model with so many updates: one more may make it much better or worse."""
    return random.Random(updates).random()


def updates_in(values: NDArray[np.float32]) -> int:
    """Of a model: each chunk of a push takes one from each of its elements."""
    return round(-float(values.sum()))


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
    checkpoint_failure: float = 0.0
    commit_crash: float = 0.0
    """That the coordinator dies when a checkpoint is there, and before it notes that."""
    pushed: dict[PushName, tuple[Range, ...]] = field(default_factory=dict)
    cuts: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Checkpoint, shard -> the life that wrote it, and how many records it had written by then."""
    violations: list[str] = field(default_factory=list)
    lives: int = 0

    @property
    def chance(self) -> random.Random:
        return self.network.chance

    @property
    def now(self) -> float:
        return self.network.time.now

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
            place=place,
        )


class Life:
    """One life of a process: its connections, its threads, and its end."""

    def __init__(self, world: World, role: TransportRole) -> None:
        world.lives += 1
        self.pid = world.lives
        self.world = world
        self.role = role
        kind = TransportKind.TCP
        limits = Limits(send_queue=world.queue, receive_queue=world.queue)
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
            except (CoordinatorError, Fenced):
                self.kill()

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
