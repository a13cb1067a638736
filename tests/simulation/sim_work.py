"""What a replica does with production's clients and sources of work, in Downpour at first.

Each gradient of Downpour is ones.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.control import ControlConnection
from disttrain.coordinator.protocol.fields import Lease, Position, Progress
from disttrain.job import defaults
from disttrain.parameter_server.client import (
    ClientConfig,
    FetchClient,
    FetchResult,
    Push,
    PushClient,
    Version,
)
from disttrain.parameter_server.conversation import Identity
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.work import HeldLeases, LostLeases, WorkItem, WorkSource
from disttrain.state.vector import Vector
from disttrain.transport.header import Role
from disttrain.transport.interface import Buffer
from disttrain.transport.virtual_time import Bell
from simulation.world import COORDINATOR, TICK_SECONDS, Incarnation, InTurn, PushName, Range, World

T = TypeVar("T")
Values = NDArray[np.floating[Any]]


class Place(Incarnation):
    """A replica's process, as its work sees it."""

    def __init__(self, world: World, index: int) -> None:
        super().__init__(world, Role.REPLICA)
        self.index = index
        self.bell = Bell(world.network.time)
        """Something has come."""
        self.control = ControlConnection(
            self.transport.connect(COORDINATOR),
            Role.REPLICA,
            1.0,
            self.transport.now,
            world.chance.random,
        )
        self.before_step: Callable[[], None] = lambda: None
        """What a step waits for: other processes of the replica."""
        self.asked: deque[tuple[messages.Request, Future[messages.Reply]]] = deque()

    def request(self, request: messages.Request) -> "Future[messages.Reply]":
        """As `CoordinatorClient.request`."""
        future: Future[messages.Reply] = Future()
        self.asked.append((request, future))
        self.control.channel.wake()
        return future

    def wait(self, seconds: float = TICK_SECONDS) -> None:
        """Return when something has come, or after so long."""
        self.world.network.time.wait(seconds, [self.bell])

    def result(self, future: "Future[T]") -> T:
        while not future.done():
            self.wait()
        return future.result()


class Work(ABC):
    """Belongs to one thread of a replica, but what reports say."""

    def __init__(self, place: Place, joined: messages.Joined) -> None:
        self.place, self.world, self.member = place, place.world, joined.member
        self.steps = self.fetched = 0
        self.is_drained = False
        assert joined.placement is not None
        config = ClientConfig(
            transport=place.transport,
            identity=Identity(joined.member.index, joined.member.incarnation),
            directory=lambda: place.control.latest.shards or (),
            placement=joined.placement,
        )
        self.pushes, self.fetches = PushClient(config), FetchClient(config)
        self.push_thread = InTurn(place, place.bell.ring)
        self.fetch_thread = InTurn(place, place.bell.ring)
        self._initial, first = self.memory()
        first[:] = self.world.start
        self.buffer, self.values = self.memory()
        # Shards answer only when somebody has sent them values, which may be this process.
        self.fetch_thread.submit(self.fetch)

    def memory(self) -> tuple[Buffer, Values]:
        """For as many numbers as there are parameters."""
        numbers = self.world.numbers
        nbytes = self.world.parameters * np.dtype(numbers).itemsize
        buffer = self.place.transport.memory("replica").allocate("vector", nbytes)
        return buffer, np.frombuffer(buffer.view, numbers)

    def fetch(self, vector: Vector | None = None) -> FetchResult:
        """What replicas compute with, unless another vector is named."""
        found = self.fetches.fetch({vector or self.world.computed_on: self.buffer})
        self.fetched += 1
        return found

    def upload(self, shards: Sequence[int]) -> None:
        """Values of no update, and not what was fetched last: see `truth`."""
        values = {self.world.vector: self._initial}
        self.place.result(self.push_thread.submit(partial(self.pushes.upload, values, shards)))

    @abstractmethod
    def progress(self) -> Progress: ...

    @abstractmethod
    def step(self) -> bool:
        """Go on, if there is anything to do."""

    @abstractmethod
    def drain(self) -> None:
        """Drop what is not computed, and wait until everything else has counted."""

    @abstractmethod
    def fetch_now(self) -> Values:
        """The shards' present values."""


class DownpourWork(Work):
    """Batch after batch of what the coordinator leases."""

    def __init__(self, place: Place, joined: messages.Joined) -> None:
        super().__init__(place, joined)
        self._gradient, ones = self.memory()
        ones[:] = 1.0
        self._lost = LostLeases(lambda: place.control.lost_leases)
        held = HeldLeases(self.member, self.progress)
        self._source = WorkSource(place.request, held, Cancellation(), place.transport.now)
        self._lease: Lease | None = None
        self._accrued: list[Range] = []
        self._reached = Position()
        self._counted = Progress()
        self._sequence = 0
        self._versions: tuple[Version, ...] = ()

    def progress(self) -> Progress:
        position = self._counted.position
        given_up = self._lost.given_up(position)
        return Progress(position=position, samples=self._counted.samples, abandoned=given_up)

    def step(self) -> bool:
        if not self.is_drained and self._lease is None:
            self._lease = self._source.next_within(0.0)
        if self._lease is None or not self.fetched:
            if self._source.dry:
                self._push()
            return False
        self._train(self._lease)
        return True

    def drain(self) -> None:
        self._source.end()
        self.is_drained = True
        self._lease = None
        self._push()

    def fetch_now(self) -> Values:
        self.fetch(self.world.vector)
        return self.values

    def _train(self, lease: Lease) -> None:
        """One batch, unless its lease is lost."""
        first = self._reached.offset if self._reached.lease == lease.id else 0
        size = defaults.samples_per_step(defaults.first_stage(self.world.job.spec))
        end = min(first + size, lease.samples)
        item = WorkItem(lease.id, lease.epoch, lease.portion, lease.first + first, end, [])
        if self._lost.skips(item, self._reached):
            self._lease = None
            # What was computed of a lost lease counts once its push is answered.
            self._push()
            return
        self.place.before_step()
        self._versions = self.fetch().versions
        chance = self.world.chance
        self.world.network.time.wait(self.world.step_seconds * chance.uniform(0.5, 2.0))
        self._accrued.append((lease.id, first, end))
        self._reached = item.position
        self._computed(end - first)
        if end == lease.samples:
            self._lease = None
        self.steps += 1
        if self.steps % self.world.push_every == 0:
            self._push_in_turn()

    def _computed(self, samples: int) -> None:
        """A step is over."""

    def _push_in_turn(self) -> None:
        self._push()

    def _push(self) -> None:
        """All that no push has yet."""
        if not self._accrued:
            return
        self._sequence += 1
        ranges, self._accrued = tuple(self._accrued), []
        name = PushName(self.member.index, self.member.incarnation, self._sequence)
        self.world.pushed[name] = ranges
        samples = sum(end - first for _, first, end in ranges)
        self.pushes.push(
            Push(
                sequence=self._sequence,
                gradient=self._gradient,
                versions=self._versions,
                samples=samples,
                lease=self._reached.lease,
                lease_offset=self._reached.offset,
            )
        )
        self._counted = Progress(position=self._reached, samples=self._counted.samples + samples)
