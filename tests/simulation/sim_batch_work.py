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
from disttrain.parameter_server.client import FetchResult, Stage
from disttrain.parameter_server.errors import EvaluationOver
from disttrain.replica.batch_connection import TrialPoint
from disttrain.replica.group_staging import GroupStaging, GroupSum
from disttrain.replica.halt import Halt
from disttrain.replica.held_groups import HeldGroups
from disttrain.replica.requested_work import GroupSource
from disttrain.sandblaster.names import TRIAL
from disttrain.state.vector import Vector
from disttrain.transport.interface import Buffer
from simulation import batch
from simulation.sim_work import Place, Values, Work
from simulation.world import as_any

T = TypeVar("T")


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
