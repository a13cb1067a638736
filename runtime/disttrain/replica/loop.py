"""The training loop: one step after the other, until told to end."""

import time
from collections.abc import Callable

from disttrain.replica import seeding
from disttrain.replica.data import LossOfBatch
from disttrain.replica.downpour import Downpour, Stepped
from disttrain.replica.leases import LeaseSource
from disttrain.replica.lost_leases import LostLeases
from disttrain.replica.pipeline import Loaded, Pipeline
from disttrain.task import user_code
from disttrain.task.loss import LossContext

_IDLE_SECONDS = 0.02
"""How long the next batch is waited for before the coordinator's orders are looked at again."""


def step(downpour: Downpour, loss: LossOfBatch, loaded: Loaded, seed: int) -> None:
    """One step on one batch."""
    downpour.end_step(compute_and_push(downpour, loss, loaded, seed))


def compute_and_push(downpour: Downpour, loss: LossOfBatch, loaded: Loaded, seed: int) -> Stepped:
    """A step up to its push; its random numbers depend on the seed and the place in the data."""
    item = loaded.item
    if item.lease != downpour.position.lease:
        downpour.ledger.lease_begun(item)
    downpour.ledger.step(downpour.counters.steps, item)

    gradient = downpour.begin_step()
    drawn = seeding.batch_seed(seed, item.epoch, item.portion, item.first)
    seeding.seed_step(drawn)
    context = LossContext(
        step=downpour.counters.steps, epoch=item.epoch, samples=downpour.samples, seed=drawn
    )
    value = loss(loaded.batch, context)
    with user_code.running("the loss's backward()"):
        value.mean.backward()  # type: ignore[no-untyped-call]
    return downpour.push_step(gradient, value, len(item.indices), item.position)


class TrainingLoop:
    """Trains on what the pipeline brings. Belongs to the compute thread."""

    def __init__(
        self,
        downpour: Downpour,
        loss: LossOfBatch,
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
        step(self._downpour, self._loss, loaded, self._seed)
        self._downpour.counters.step_seconds += time.perf_counter() - began

    def _next_batch(self) -> Loaded | None:
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
