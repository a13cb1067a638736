"""The training loop of a replica of Downpour."""

import time
from collections.abc import Callable
from typing import Protocol

from disttrain.replica import task_calls
from disttrain.replica.downpour import Downpour
from disttrain.replica.pipeline import Loaded
from disttrain.replica.task_calls import LossOfBatch
from disttrain.replica.work import LostLeases
from disttrain.task import user_code
from disttrain.task.loss import BatchLoss, LossContext

_IDLE_SECONDS = 0.02
"""How long the next batch is waited for before the coordinator's commands are looked at again."""


class BatchSource(Protocol):
    """What is trained on: the pipeline, or what `disttrain replay` follows a record with."""

    @property
    def dry(self) -> bool:
        """Everything received was given out, and the coordinator had no more."""
        ...

    def next(self, timeout: float) -> Loaded | None:
        """The next batch, or None after `timeout` seconds without one."""
        ...

    def drop(self) -> None:
        """Give no more."""
        ...


class TrainingLoop:
    """Trains on what the pipeline brings. Belongs to the compute thread."""

    def __init__(
        self,
        downpour: Downpour,
        loss: LossOfBatch,
        batches: BatchSource,
        lost: LostLeases,
        seed: int,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell`: brings the coordinator to know which leases are given up."""
        self._downpour = downpour
        self._loss = loss
        self._batches = batches
        self._lost = lost
        self._seed = seed
        self._tell = tell
        self._leases: list[int] = []
        """Of the batches computed, but those that are known to be answered."""
        self._flushed_at = 0

    def train_until(self, ends: Callable[[], bool]) -> None:
        """Step after step, until `ends()` is true between two of them.

        `ends()` carries out what the coordinator commands: uploads, evaluations, the end.
        """
        downpour, counters = self._downpour, self._downpour.counters
        while not ends():
            if downpour.was_too_stale:
                self._give_up()
            loaded = self._next_batch()
            if loaded is None:
                self._flush_if_dry()
                continue
            if self._lost.skips(loaded.item, downpour.position):
                continue
            began = time.perf_counter()
            self._log(loaded)
            samples, position = len(loaded.item.indices), loaded.item.position

            gradient = downpour.begin_step()
            loss = self._compute(loaded)
            scale = downpour.accrue(gradient, loss, samples, position)
            downpour.push()
            downpour.adopt(gradient, scale, samples)
            counters.compute_seconds += time.perf_counter() - began

    def drain(self) -> None:
        """Drop the batches not begun; push everything and wait for the answers."""
        self._batches.drop()
        self._downpour.flush()

    def _compute(self, loaded: Loaded) -> BatchLoss:
        """Loss and gradient; the random numbers depend on the seed and the place in the data."""
        downpour, item = self._downpour, loaded.item
        drawn = task_calls.batch_seed(self._seed, item.epoch, item.portion, item.first)
        task_calls.seed_step(drawn)
        context = LossContext(
            step=downpour.counters.steps, epoch=item.epoch, samples=downpour.samples, seed=drawn
        )
        loss = self._loss(loaded.batch, context)
        with user_code.running("the loss's backward()"):
            loss.mean.backward()  # type: ignore[no-untyped-call]
        return loss

    def _log(self, loaded: Loaded) -> None:
        downpour = self._downpour
        if loaded.item.lease != downpour.position.lease:
            downpour.ledger.lease_begun(loaded.item)
            self._leases = [*self._unanswered(), loaded.item.lease]
        downpour.ledger.step(downpour.counters.steps, loaded.item)

    def _unanswered(self) -> list[int]:
        answered = self._downpour.acknowledged.lease
        return [lease for lease in self._leases if lease >= answered]

    def _give_up(self) -> None:
        """What is too old goes back, and the rest of its leases: any replica may process it.

        The coordinator knows before anything more is pushed. Else a position in a later lease
        would say that these are complete.
        """
        self._lost.give_up(self._unanswered(), self._downpour.start_over())
        self._leases.clear()
        self._tell()

    def _next_batch(self) -> Loaded | None:
        began = time.perf_counter()
        loaded = self._batches.next(_IDLE_SECONDS)
        self._downpour.counters.data_seconds += time.perf_counter() - began
        return loaded

    def _flush_if_dry(self) -> None:
        """A portion is done only when acknowledged, and others may wait for it."""
        steps = self._downpour.counters.steps
        if self._batches.dry and self._flushed_at != steps:
            self._downpour.flush()
            self._flushed_at = steps
