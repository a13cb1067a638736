"""What a replica does in a batch method, with production's sources of work and group staging."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Lease, Progress
from disttrain.parameter_server.client import FetchClient, FetchResult, PushClient
from disttrain.parameter_server.errors import EvaluationOver
from disttrain.replica.agreement import ALONE
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.client_threads import Transfers
from disttrain.replica.groups import GroupStaging, GroupSum, HeldGroups
from disttrain.replica.strategies.sandblaster import TrialPoint
from disttrain.replica.work import WorkSource
from disttrain.state.vector import Vector
from disttrain.transport.interface import Buffer
from simulation import batch
from simulation.sim_work import Place, Values, Work
from simulation.world import InTurn, as_any

T = TypeVar("T")


class BatchWork(Work):
    """Portion after portion of the groups that the coordinator gives."""

    def __init__(self, place: Place, joined: messages.Joined, before: Progress) -> None:
        """`before`: what was done in the warm start."""
        super().__init__(place, joined)
        self._before = before
        self._slowness = self.world.chance.choice([1.0, 1.0, 10.0])
        samples = partial(permutation.portion_samples, batch.SAMPLES, batch.PORTION)
        now = place.transport.now
        held = self._held = HeldGroups(self.member, self.progress, samples, now)
        connection = self._connection = _Connection(self)
        self._staging = GroupStaging(as_any(connection), place.request, self.member, held)
        self._point = TrialPoint(as_any(connection))
        self._source = WorkSource(place.request, held, Cancellation(), now)
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
        while self._connection.pushes.is_busy:
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


class _Side:
    """As `ClientThread` of one direction."""

    def __init__(self, work: BatchWork, thread: InTurn, client: PushClient | FetchClient) -> None:
        self.client = client
        self.transfers = Transfers()
        self._work = work
        self._thread = thread
        self._begun: list[Future[Any]] = []
        self._fetching: Future[FetchResult] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether gradients or results are on their way."""
        self._begun = [future for future in self._begun if not _is_over(future)]
        return bool(self._begun)

    def begin(self, act: Callable[[], T]) -> "Future[T]":
        begun = self._thread.submit(act)
        self._begun.append(begun)
        return begun

    def ask(self, into: object, land: object) -> None:
        del into, land
        self._fetching = self._thread.submit(self._work.fetch)

    def wait(self) -> FetchResult | None:
        return None if self._fetching is None else self._work.place.result(self._fetching)


class _Connection:
    """As `Connection`, whose model it is, too."""

    def __init__(self, work: BatchWork) -> None:
        self.model = self
        self.cancellation = Cancellation()
        self.agreement = ALONE
        self.pushes = _Side(work, work.push_thread, work.pushes)
        self.fetches = _Side(work, work.fetch_thread, work.fetches)
        self.vector: Vector = work.world.vector
        self.point = np.array(work.values, np.float64)
        """At which gradients are computed."""
        self._work = work
        self._trial, self._values = work.memory()

    def gradients(self, count: int) -> "list[_Gradient]":
        return [_Gradient(*self._work.memory()) for _ in range(count)]

    def collect_gradients_in(self, views: object) -> None:
        """Whoever computes knows where."""

    def trial_into(self) -> Buffer:
        return self._trial

    def fetch_into(self) -> None:
        """Who fetches knows where, too."""

    def land(self) -> None:
        """It is there."""

    def land_trial(self) -> None:
        """It is there."""

    def adopt(self, *, buffers: bool) -> None:
        del buffers
        self.point = np.array(self._values, np.float64)


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

    def leave(self) -> None:
        """It is where it is sent from."""

    def wait_left(self) -> None:
        """It is there."""

    @property
    def gradient_views(self) -> tuple[()]:
        return ()

    @property
    def tensor(self) -> torch.Tensor:
        return torch.frombuffer(self.buffer.view, dtype=torch.float64)
