"""A job's stages in a replica: one strategy's training after the other, on the same model."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from disttrain.coordinator.protocol import orders, reports
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.parameter_server.client import Versions
from disttrain.replica.training import Handover, Training
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_IDLE_SECONDS = 0.01

Begin: TypeAlias = Callable[[Handover | None], Training]
"""Makes the training of a stage, with what the stage before it has released."""


class Stages:
    """The training of a whole job; as `Training`, whose methods are the present stage's."""

    def __init__(self, stages: Sequence[Begin]) -> None:
        first, *self._to_come = stages
        begun = first(None)
        self.pushes, self.fetches, self.ledger = begun.pushes, begun.fetches, begun.ledger
        self._at: tuple[ReplicaReport | None, Training] = (None, begun)
        """What the stages before did, and the present one's training. Written and read as one:
        other threads ask for reports while a stage ends."""

    @property
    def _now(self) -> Training:
        return self._at[1]

    def begin(self, meanwhile: Callable[[], None]) -> None:
        """Also a replica that joins in a later stage begins with the first one."""
        self._now.begin(meanwhile)

    def train_until(self, ends: Callable[[], bool]) -> None:
        """The end of a stage comes within `ends()`, as a command."""
        while self._train_stage(ends):
            pass

    def next_stage(self) -> None:
        """Work in the next stage from now on, with the shards' values. Nothing if there is none."""
        if not self._to_come:
            return
        self._now.drain()
        then = self._to_come.pop(0)(self._now.release())
        then.begin(lambda: time.sleep(_IDLE_SECONDS))
        done = self.report()
        self._at = (done, then)
        LOG.info("began the next stage", samples=done.progress.samples)

    def drain(self) -> None:
        self._now.drain()

    def write_part(self, order: orders.Checkpoint) -> orders.Result:
        return self._now.write_part(order)

    def upload(self, shards: tuple[int, ...]) -> None:
        self._now.upload(shards)

    def fetch_now(self) -> Versions:
        return self._now.fetch_now()

    def evaluated(self) -> None:
        self._now.evaluated()

    def progress(self) -> Progress:
        done, training = self._at
        return _together(done, training.progress())

    def report(self) -> ReplicaReport:
        done, training = self._at
        now = training.report()
        if done is None:
            return now
        return replace(reports.added(done, now), progress=_together(done, training.progress()))

    def close(self) -> None:
        self._now.close()
        self.ledger.close()

    def _train_stage(self, ends: Callable[[], bool]) -> bool:
        """Train in the present stage; whether another one has begun since."""
        stage = self._now
        stage.train_until(lambda: ends() or self._now is not stage)
        return self._now is not stage


def _together(done: ReplicaReport | None, now: Progress) -> Progress:
    if done is None:
        return now
    before = done.progress
    return replace(
        now, position=max(before.position, now.position), samples=before.samples + now.samples
    )
