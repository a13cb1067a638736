"""The training loop: one step after the other, until told to end."""

import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from disttrain.replica import seeding
from disttrain.replica.downpour import Downpour
from disttrain.replica.leases import LeaseSource
from disttrain.replica.lost_leases import LostLeases
from disttrain.replica.pipeline import Loaded, Pipeline
from disttrain.replica.work import WorkItem

_IDLE_SECONDS = 0.02
"""How long the next batch is waited for before the coordinator's orders are looked at again."""


class TrainingLoop:
    """Trains on what the pipeline brings. Belongs to the compute thread."""

    def __init__(
        self,
        downpour: Downpour,
        loss: Callable[[Any], Tensor],
        pipeline: Pipeline,
        source: LeaseSource,
        lost: LostLeases,
        seed: int,
    ) -> None:
        self._downpour = downpour
        self._loss = loss
        self._pipeline = pipeline
        self._source = source
        self._lost = lost
        self._seed = seed
        self._flushed_at = 0

    def train_until(self, ends: Callable[[], bool]) -> None:
        """Step after step, until `ends()` is true between two of them."""
        while not ends():
            loaded = self._next_batch()
            if loaded is None:
                self._flush_if_dry()
            elif not self._lost.skips(loaded.item, self._downpour.position):
                self._step(loaded)

    def drain(self) -> None:
        """Drop the batches not begun; push everything and wait for the answers."""
        self._pipeline.drop()
        self._downpour.flush()

    def _step(self, loaded: Loaded) -> None:
        began = time.perf_counter()
        item = loaded.item
        self._note(item)

        gradient = self._downpour.begin_step()
        seeding.seed_step(seeding.batch_seed(self._seed, item.epoch, item.portion, item.first))
        loss = self._loss(loaded.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self._downpour.finish_step(gradient, loss.item(), len(item.indices), item.position)

        self._downpour.counters.step_seconds += time.perf_counter() - began

    def _note(self, item: WorkItem) -> None:
        ledger, steps = self._downpour.ledger, self._downpour.counters.steps
        if item.lease != self._downpour.position.lease:
            ledger.lease_begun(item)
        ledger.step(steps, item)

    def _next_batch(self) -> Loaded | None:
        loaded = self._pipeline.next(0)
        if loaded is not None:
            return loaded
        began = time.perf_counter()
        loaded = self._pipeline.next(_IDLE_SECONDS)
        self._downpour.counters.data_seconds += time.perf_counter() - began
        return loaded

    def _flush_if_dry(self) -> None:
        """A portion is done only when acknowledged, and others may wait for it."""
        steps = self._downpour.counters.steps
        if self._source.dry and self._flushed_at != steps:
            self._downpour.flush()
            self._flushed_at = steps
