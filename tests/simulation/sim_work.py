"""What a replica does in each stage of a job, with production's clients, sources and staging.

Of Downpour every gradient is ones; of a batch method it is that of `batch.loss`.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from disttrain.coordinator.leases import permutation
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
    Stage,
    Version,
)
from disttrain.parameter_server.errors import EvaluationOver
from disttrain.parameter_server.messages import Identity
from disttrain.replica.batch_connection import TrialPoint
from disttrain.replica.group_staging import GroupStaging, GroupSum
from disttrain.replica.halt import Halt
from disttrain.replica.held_groups import HeldGroups
from disttrain.replica.lost_leases import LostLeases
from disttrain.replica.requested_work import GroupSource, LeaseSource
from disttrain.replica.work import WorkItem
from disttrain.sandblaster.names import TRIAL
from disttrain.state.vector import Vector
from disttrain.transport.header import Role
from disttrain.transport.interface import Buffer
from disttrain.transport.virtual_time import Bell
from simulation import batch
from simulation.world import COORDINATOR, TICK_SECONDS, InTurn, Life, PushName, Range, World, as_any

T = TypeVar("T")
Values = NDArray[np.floating[Any]]


class Place(Life):
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

    def fetch(self) -> FetchResult:
        found = self.fetches.fetch({self.world.vector: self.buffer})
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
        self._source = LeaseSource(place, self.member, self.progress, Halt(), place.transport.now)
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
        self._versions = self.fetch().versions
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
        self.fetch_now()
        chance = self.world.chance
        self.world.network.time.wait(self.world.step_seconds * chance.uniform(0.5, 2.0))
        self._accrued.append((lease.id, first, end))
        self._reached = item.position
        if end == lease.samples:
            self._lease = None
        self.steps += 1
        if self.steps % self.world.push_every == 0:
            self._push()

    def _push(self) -> None:
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


class BatchWork(Work):
    """Portion after portion of the groups that the coordinator gives."""

    def __init__(self, place: Place, joined: messages.Joined, before: Progress) -> None:
        """`before`: what was done in the warm start."""
        super().__init__(place, joined)
        self._before = before
        self._slowness = self.world.chance.choice([1.0, 1.0, 10.0])
        held = self._held = HeldGroups(place.transport.now)
        connection = self._connection = _Connection(self)
        self._staging = GroupStaging(as_any(connection), place, self.member, held)
        self._point = TrialPoint(as_any(connection))
        samples = partial(permutation.portion_samples, batch.SAMPLES, batch.PORTION)
        self._source = GroupSource(place, self.member, held, self.progress, samples, Halt())
        self._portion: Lease | None = None
        self._sum: GroupSum | None = None

    def progress(self) -> Progress:
        before = self._before
        return Progress(position=before.position, samples=before.samples + self._staging.samples)

    def step(self) -> bool:
        self._staging.settle()
        if not self.fetched or self.is_drained:
            return False
        self._portion = self._portion or self._source.next_within(0.0)
        if self._portion is None or not self._is_over(self._portion):
            return False
        self._portion = None
        return True

    def drain(self) -> None:
        self._source.end()
        self.is_drained = True
        self._portion = None
        self._abandon()
        while self._connection.is_busy:
            self.place.wait()
        self._staging.drain()

    def fetch_now(self) -> Values:
        self._point.fetch_now()
        return self.values

    def _is_over(self, portion: Lease) -> bool:
        """Whether nothing is left to do with it; see `BatchLoop`."""
        group = self._held.get(portion.id)
        if group is None:
            return True
        try:
            if not self._point.is_here(group.evaluation, 0.0):
                return False
        except EvaluationOver:
            self._held.drop(group.evaluation)
            return True
        if self._sum is None or self._sum.number != portion.id:
            self._abandon()
            self._sum = self._staging.begin(portion.id, group)
        if self._sum is not None:
            self._compute(self._sum, portion)
            return True
        return False

    def _compute(self, unfinished: GroupSum, portion: Lease) -> None:
        assert portion.portion == unfinished.next_portion
        seconds = self._slowness * self.world.chance.uniform(0.01, 0.05)
        self.world.network.time.wait(seconds)
        loss, gradient, samples = batch.loss(portion.portion, self._connection.point)
        as_any(unfinished.gradient).values += gradient
        unfinished.loss += loss
        unfinished.samples += samples
        unfinished.next_portion += 1
        self.steps += 1
        if unfinished.is_complete:
            self._sum = None
            self._staging.send(unfinished)

    def _abandon(self) -> None:
        if self._sum is not None:
            self._staging.abandon(self._sum)
        self._sum = None


class _Connection:
    """As `BatchConnection`, whose model and whose ways to wait it is, too."""

    def __init__(self, work: BatchWork) -> None:
        self.model = self.halt = self
        self.vector: Vector = work.world.vector
        self.point = np.array(work.values, np.float64)
        """At which gradients are computed."""
        self._work = work
        self._trial, self._trial_values = work.memory()
        self._under_way: list[Future[Any]] = []

    @property
    def is_busy(self) -> bool:
        """Whether gradients or results are on their way."""
        self._under_way = [future for future in self._under_way if not _is_over(future)]
        return bool(self._under_way)

    def gradients(self, count: int) -> "list[_Gradient]":
        return [_Gradient(*self._work.memory()) for _ in range(count)]

    def collect_gradients_in(self, views: object) -> None:
        """Whoever computes knows where."""

    def stage(
        self, stage: Stage, gradient: object, then: Callable[[tuple[int, ...]], T]
    ) -> "Future[T]":
        del gradient
        sent = self._work.push_thread.submit(lambda: then(self._work.pushes.stage(stage)))
        self._under_way.append(sent)
        return sent

    def fetch_trial(self, evaluation: int) -> "Future[None]":
        trial = self.vector.beside(TRIAL)
        fetch = partial(self._work.fetches.fetch_trial, evaluation, trial, self._trial)
        return self._work.fetch_thread.submit(fetch)

    def adopt(self, *, buffers: bool) -> None:
        del buffers
        self.point = np.array(self._trial_values, np.float64)

    def fetch(self) -> FetchResult:
        return self._work.place.result(self._work.fetch_thread.submit(self._work.fetch))

    def settled(self, future: "Future[Any]") -> None:
        while not future.done():
            self._work.place.wait()

    def check(self) -> None:
        """Nobody halts."""


def _is_over(future: "Future[Any]") -> bool:
    """Whether a gradient is at the shards, and the coordinator was told, or it is of no use."""
    return future.done() and (future.exception() is not None or future.result().done())


@dataclass(slots=True)
class _Gradient:
    """As `flat_vector.Gradient`, and its own vector."""

    buffer: Buffer
    values: Values

    @property
    def gradient(self) -> "_Gradient":
        return self

    @property
    def gradient_views(self) -> tuple[()]:
        return ()

    @property
    def tensor(self) -> torch.Tensor:
        return torch.frombuffer(self.buffer.view, dtype=torch.float64)
