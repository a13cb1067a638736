"""What a strategy does in a replica: the part of its work that is not the same for all."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from torch import nn

from disttrain.coordinator.protocol import reports
from disttrain.coordinator.protocol.commands import Checkpoint, CommandFailed, Result
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.messages import Joined
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job.spec import Spec
from disttrain.job.strategy_kind import StrategyKind
from disttrain.parameter_server.client import Versions
from disttrain.replica.membership import Membership
from disttrain.replica.prepared import Prepared
from disttrain.task.loss import Reported
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_IDLE_SECONDS = 0.01


Evaluate = Callable[[Callable[[], Versions]], None]
"""Measures the model, once the function that it is given has brought the values to it."""


class TrainingInputs(NamedTuple):
    """What a training works with."""

    spec: Spec
    """The job's, or of a stage of it as a job of its own."""
    prepared: Prepared
    membership: Membership
    joined: Joined


@dataclass(slots=True)
class Counters:
    """What was done since the process started; written by the compute thread only."""

    steps: int = 0
    """Portions, of a batch method."""
    loss_sum: float = 0.0
    loss_steps: int = 0
    """Steps whose loss is in the sum."""
    non_finite: int = 0
    non_finite_lease: int = 0
    compute_seconds: float = 0.0
    data_seconds: float = 0.0
    """Waiting for data; where a step is a portion, only for that of groups that are held."""
    push_seconds: float = 0.0
    reported: Reported = field(default_factory=Reported)

    def report(self, progress: Progress) -> ReplicaReport:
        """What they are now, for a heartbeat; any thread."""
        return ReplicaReport(
            progress=progress,
            steps=self.steps,
            loss_sum=self.loss_sum,
            loss_steps=self.loss_steps,
            reported_sums=self.reported.sums,
            reported_steps=self.reported.steps,
            non_finite=self.non_finite,
            non_finite_lease=self.non_finite_lease,
            compute_seconds=self.compute_seconds,
            data_seconds=self.data_seconds,
            push_seconds=self.push_seconds,
        )


class Training(ABC):
    """One incarnation of a replica computes gradients for the shards, or for itself.

    Belongs to the compute thread; `report` and `progress` may be asked for by any.
    """

    of: ClassVar[type[StrategyKind]]
    """The manifest's type for it."""

    @abstractmethod
    def __init__(self, given: TrainingInputs) -> None: ...

    @staticmethod
    def check_model(strategy: StrategyKind, model: nn.Module) -> None:
        """Raises a FinalError for one that it cannot train as the manifest says."""
        del strategy, model

    @abstractmethod
    def begin(self, meanwhile: Callable[[], None]) -> None:
        """Take over the holders' values; `meanwhile()` is called until they are there."""

    @abstractmethod
    def train_until(self, ends: Callable[[], bool]) -> None:
        """Compute what the coordinator gives out, until `ends()` is true between two steps."""

    @abstractmethod
    def drain(self) -> None:
        """Begin nothing more; return when the holders have what was computed. Raises Cancelled."""

    def write_part(self, command: Checkpoint) -> Result:
        """Write a part of a checkpoint, of a replica that holds some of the job's state."""
        return CommandFailed(
            message=f"a replica holds nothing that checkpoint {command.number} wants"
        )

    def measure(self, evaluate: Evaluate) -> None:
        """Have the holders' present values measured, at once or between two later steps."""
        evaluate(self.fetch_now)

    def fetch_now(self) -> Versions:
        """Give the model the holders' present values; their versions. Raises Cancelled."""
        return ()

    def release(self) -> None:  # noqa: B027 - no stage follows most strategies.
        """Leave the connection to the next stage's training, after `drain`. Raises Cancelled."""

    @abstractmethod
    def progress(self) -> Progress:
        """How far the holders are with what was computed."""

    @abstractmethod
    def report(self) -> ReplicaReport:
        """The counters as they are now."""


class Stages:
    """A job's stages: one strategy's training after the other, on the same model."""

    def __init__(self, stages: Sequence[Callable[[], Training]]) -> None:
        """Each makes a stage's training, when the one before has released the connection."""
        first, *self._to_come = stages
        self._at: tuple[ReplicaReport | None, Training] = (None, first())
        """What the stages before did, and the present one's training. Written and read as one:
        other threads ask for reports while a stage ends."""

    @property
    def now(self) -> Training:
        return self._at[1]

    def begin(self, meanwhile: Callable[[], None]) -> None:
        """Also a replica that joins in a later stage begins with the first one."""
        self.now.begin(meanwhile)

    def train_until(self, ends: Callable[[], bool]) -> None:
        """The end of a stage comes within `ends()`, as a command."""
        while self._train_stage(ends):
            pass

    def next_stage(self) -> None:
        """Work in the next stage from now on, with the shards' values. Nothing if there is none."""
        if not self._to_come:
            return
        self.now.drain()
        self.now.release()
        then = self._to_come.pop(0)()
        then.begin(lambda: time.sleep(_IDLE_SECONDS))
        done = self.report()
        self._at = (done, then)
        LOG.info("began the next stage", samples=done.progress.samples)

    def progress(self) -> Progress:
        done, training = self._at
        return _together(done, training.progress())

    def report(self) -> ReplicaReport:
        done, training = self._at
        now = training.report()
        if done is None:
            return now
        return replace(reports.added(done, now), progress=_together(done, training.progress()))

    def _train_stage(self, ends: Callable[[], bool]) -> bool:
        """Train in the present stage; whether another one has begun since."""
        stage = self.now
        stage.train_until(lambda: ends() or self.now is not stage)
        return self.now is not stage


def _together(done: ReplicaReport | None, now: Progress) -> Progress:
    if done is None:
        return now
    before = done.progress
    return replace(
        now, position=max(before.position, now.position), samples=before.samples + now.samples
    )
