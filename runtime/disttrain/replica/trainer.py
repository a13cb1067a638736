"""Trains on what the pipeline brings, until told to end or to drain."""

import time
from collections.abc import Callable

from disttrain.replica.leases import LeaseSource
from disttrain.replica.loop import TrainingLoop
from disttrain.replica.lost_leases import LostLeases
from disttrain.replica.pipeline import Loaded, Pipeline

_IDLE_SECONDS = 0.02


class Trainer:
    """The compute thread from the first step to the end."""

    def __init__(
        self, loop: TrainingLoop, pipeline: Pipeline, source: LeaseSource, lost: LostLeases
    ) -> None:
        self._loop = loop
        self._pipeline = pipeline
        self._source = source
        self._lost = lost
        self._flushed_at = 0

    def train_until(self, ends: Callable[[], bool]) -> None:
        """Step after step, until `ends()` is true between two of them."""
        while not ends():
            loaded = self._next()
            if loaded is None:
                self._flush_when_dry()
            elif not self._lost.skips(loaded.item, self._loop.position):
                self._loop.step(loaded)

    def drain(self) -> None:
        """Drop the batches not begun; push everything and wait for the answers."""
        self._pipeline.drop()
        self._loop.flush()

    def _next(self) -> Loaded | None:
        loaded = self._pipeline.next(0)
        if loaded is not None:
            return loaded
        began = time.perf_counter()
        loaded = self._pipeline.next(_IDLE_SECONDS)
        self._loop.counters.data_seconds += time.perf_counter() - began
        return loaded

    def _flush_when_dry(self) -> None:
        """A portion is done only when acknowledged, and others may wait for it."""
        steps = self._loop.counters.steps
        if self._source.dry and self._flushed_at != steps:
            self._loop.flush()
            self._flushed_at = steps
