"""A job's phases in a replica: one strategy's training after the other, on the same model."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from disttrain.coordinator.protocol import reports
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.parameter_server.client import Versions
from disttrain.replica.training import Handover, Training
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_IDLE_SECONDS = 0.01

Begin: TypeAlias = Callable[[Handover | None], Training]
"""Makes the training of a phase, with what the phase before it has released."""


class Phases:
    """The training of a whole job; as `Training`, whose methods are the present phase's."""

    def __init__(self, phases: Sequence[Begin]) -> None:
        first, *self._to_come = phases
        self._now = first(None)
        self.pushes, self.fetches = self._now.pushes, self._now.fetches
        self.ledger = self._now.ledger
        self._done: ReplicaReport | None = None
        """Of the phases before; None in the first one."""

    def begin(self, meanwhile: Callable[[], None]) -> None:
        """Also a replica that joins in a later phase begins with the first one."""
        self._now.begin(meanwhile)

    def train_until(self, ends: Callable[[], bool]) -> None:
        """The end of a phase comes within `ends()`, as a command."""
        while self._train_phase(ends):
            pass

    def next_phase(self) -> None:
        """Work in the next phase from now on, with the shards' values. Nothing if there is none."""
        if not self._to_come:
            return
        self._now.drain()
        then = self._to_come.pop(0)(self._now.release())
        then.begin(lambda: time.sleep(_IDLE_SECONDS))
        self._done, self._now = self.report(), then
        LOG.info("began the next phase", samples=self._done.progress.samples)

    def drain(self) -> None:
        self._now.drain()

    def upload(self, shards: tuple[int, ...]) -> None:
        self._now.upload(shards)

    def fetch_now(self) -> Versions:
        return self._now.fetch_now()

    def evaluated(self) -> None:
        self._now.evaluated()

    def progress(self) -> Progress:
        now = self._now.progress()
        if self._done is None:
            return now
        done = self._done.progress
        return replace(
            now, position=max(done.position, now.position), samples=done.samples + now.samples
        )

    def report(self) -> ReplicaReport:
        now = self._now.report()
        if self._done is None:
            return now
        return replace(reports.added(self._done, now), progress=self.progress())

    def close(self) -> None:
        self._now.close()
        self.ledger.close()

    def _train_phase(self, ends: Callable[[], bool]) -> bool:
        """Train in the present phase; whether another one has begun since."""
        phase = self._now
        phase.train_until(lambda: ends() or self._now is not phase)
        return self._now is not phase
