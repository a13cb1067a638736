"""A batch method with a warm start in a replica: Downpour first, the method when it is told so."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from disttrain.coordinator.protocol import reports
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.replica.batch_training import BatchTraining
from disttrain.replica.connection import Connection
from disttrain.replica.downpour_training import DownpourTraining
from disttrain.replica.exchange import Versions
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_IDLE_SECONDS = 0.01

BeginBatches: TypeAlias = Callable[[Connection], BatchTraining]
"""Makes the second half, which goes on with the model of the first, which it has released."""


class WarmStartedTraining:
    """See `training.Training`."""

    def __init__(self, first: DownpourTraining, then: BeginBatches) -> None:
        self.pushes, self.fetches, self.ledger = first.pushes, first.fetches, first.ledger
        self._first = first
        self._begin_batches = then
        self._then: BatchTraining | None = None
        self._done = ReplicaReport()
        """What was done before the batch method."""

    @property
    def _now(self) -> DownpourTraining | BatchTraining:
        return self._then or self._first

    def begin(self, meanwhile: Callable[[], None]) -> None:
        """See `Training`: also a replica that joins later begins so."""
        self._now.begin(meanwhile)

    def train_until(self, ends: Callable[[], bool]) -> None:
        """See `Training`. The end of the warm start comes within `ends()`, as an order."""
        self._first.train_until(lambda: ends() or self._then is not None)
        if self._then is not None:
            self._then.train_until(ends)

    def leave_warm_start(self) -> None:
        if self._then is not None:
            return
        self._first.drain()
        then = self._begin_batches(self._first.release())
        then.begin(lambda: time.sleep(_IDLE_SECONDS))
        self._done, self._then = self._first.report(), then
        LOG.info("has left the warm start", samples=self._done.progress.samples)

    def drain(self) -> None:
        self._now.drain()

    def upload(self, shards: tuple[int, ...]) -> None:
        self._now.upload(shards)

    def fetch_now(self) -> Versions:
        return self._now.fetch_now()

    def evaluated(self) -> None:
        self._now.evaluated()

    def progress(self) -> Progress:
        if self._then is None:
            return self._first.progress()
        done, now = self._done.progress, self._then.progress()
        return replace(
            now, position=max(done.position, now.position), samples=done.samples + now.samples
        )

    def report(self) -> ReplicaReport:
        if self._then is None:
            return self._first.report()
        return replace(reports.added(self._done, self._then.report()), progress=self.progress())

    def close(self) -> None:
        self._now.close()
        self.ledger.close()
