"""What the journal says of the job as a whole, its checkpoints and its evaluations."""

from dataclasses import dataclass, replace

from disttrain.coordinator.journal.state import (
    BestModel,
    Evaluation,
    Improvement,
    OpenCheckpoint,
    Saved,
    State,
)
from disttrain.coordinator.journal.totals import Extremes
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol.commands import Checkpoint, ShardWritten
from disttrain.coordinator.protocol.content import Content
from disttrain.coordinator.protocol.fields import Tagged
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import Placement
from disttrain.transport.header import Role

_EVALUATIONS_KEPT = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Restarted(Tagged, kind="restarted"):
    """The coordinator itself came back from its journal."""

    def apply(self, state: State) -> None:
        state.totals.add_restart(Role.COORDINATOR)
        for role in (Role.REPLICA, Role.SHARD):
            state.members_changed(role)
        state.incarnation += 1
        if state.batch is not None:
            state.batch.driver.taken_over(state.batch.course, state.incarnation)


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseChanged(Tagged, kind="phase_changed"):
    """The job goes on to another phase."""

    phase: Phase
    now: float
    reason: str = ""
    message: str = ""

    def apply(self, state: State) -> None:
        state.phase = self.phase
        state.reason = self.reason or state.reason
        state.message = self.message or state.message
        if self.phase is Phase.RUNNING:
            self._train(state)
        if self.phase is Phase.CHECKPOINTING:
            state.final_checkpoint = state.next_checkpoint
        if self.phase.ended:
            state.ended = self.now
            state.orders.clear()

    def _train(self, state: State) -> None:
        """Training begins, or goes on because the exported model misses its target."""
        if state.began is None:
            state.began = self.now
        else:
            state.evaluated_epoch = max(state.evaluated_epoch, state.data.epochs_done)
        state.reason = ""
        state.evaluation_tried = self.now
        state.final_failures = 0
        state.evaluations = [replace(found, final=False) for found in state.evaluations]


@dataclass(frozen=True, kw_only=True, slots=True)
class StopAsked(Tagged, kind="stop_asked"):
    """A person wants the job to end."""

    def apply(self, state: State) -> None:
        state.stopping = True


@dataclass(frozen=True, kw_only=True, slots=True)
class DataKnown(Tagged, kind="data_known"):
    """The first replica said how much data there is."""

    seed: int
    samples: int
    portion_size: int
    batch_size: int
    test_samples: int
    warm_start: int | None = None
    """Samples that a batch method begins with, if it has a warm start."""
    sources: str = ""
    """As in `DataLedger`."""

    def apply(self, state: State) -> None:
        state.test_samples = self.test_samples
        state.warm_start.samples = self.warm_start
        if state.data.samples == 0:
            state.data = DataLedger(
                seed=self.seed,
                samples=self.samples,
                portion_size=self.portion_size,
                batch_size=self.batch_size,
                sources=self.sources,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ContentKnown(Tagged, kind="content_known"):
    """The first replica told some examples of its data."""

    content: Content

    def apply(self, state: State) -> None:
        state.content = self.content


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutKnown(Tagged, kind="layout_known"):
    """The first replica of a run described the model."""

    layout: ModelLayout

    def apply(self, state: State) -> None:
        state.layout = self.layout
        state.may_be_divided_anew = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed(Tagged, kind="placed"):
    """Who holds what from now on."""

    placement: Placement

    def apply(self, state: State) -> None:
        state.placement = self.placement


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointBegun(Tagged, kind="checkpoint_begun"):
    """The snapshot of the ledger was taken."""

    number: int
    now: float

    def apply(self, state: State) -> None:
        state.checkpoint = OpenCheckpoint(number=self.number, began=self.now, samples=state.samples)
        state.checkpoint_tried = self.now
        state.next_checkpoint = self.number + 1
        if state.batch is not None:
            state.batch.open_checkpoint()


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPartWritten(Tagged, kind="shard_part_written"):
    """A shard's part of the checkpoint is on disk."""

    number: int
    shard: int
    part: ShardWritten

    def apply(self, state: State) -> None:
        if state.checkpoint is not None and state.checkpoint.number == self.number:
            state.checkpoint.parts[self.shard] = self.part
        blocked = max(state.totals.blocking_seconds, self.part.blocking_seconds)
        state.totals.blocking_seconds = blocked


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointEnded(Tagged, kind="checkpoint_ended"):
    """The checkpoint is committed, or was removed."""

    number: int
    committed: bool
    message: str = ""

    def apply(self, state: State) -> None:
        opened, state.checkpoint = state.checkpoint, None
        if state.batch is not None:
            state.batch.end_checkpoint(self.number, is_committed=self.committed)
        if self.committed:
            state.last_checkpoint = self.number
            state.saved = None if opened is None else _saved(opened)
            state.totals.checkpoints += 1
            state.checkpoint_failure = ""
        else:
            state.totals.checkpoint_failures += 1
            state.final_failures += state.phase is Phase.CHECKPOINTING
            state.checkpoint_failure = self.message
        for number, issued in list(state.orders.items()):
            if isinstance(issued.order, Checkpoint) and issued.order.number == self.number:
                del state.orders[number]


def _saved(opened: OpenCheckpoint) -> Saved:
    versions = {shard: part.version for shard, part in opened.parts.items()}
    return Saved(number=opened.number, time=opened.began, samples=opened.samples, versions=versions)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationBegun(Tagged, kind="evaluation_begun"):
    """A replica is asked to evaluate."""

    epoch: int
    now: float

    def apply(self, state: State) -> None:
        state.evaluating = True
        state.evaluating_samples = state.samples
        state.evaluation_tried = self.now
        state.evaluated_epoch = max(state.evaluated_epoch, self.epoch)
        if state.batch is not None:
            state.batch.evaluated_iteration = state.batch.course.method.progress.iteration


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationEnded(Tagged, kind="evaluation_ended"):
    """The measures are known."""

    evaluation: Evaluation
    improvement: Improvement | None = None
    """After it; None: as it was."""

    best_model: BestModel | None = None
    """It was written; None: not in this evaluation."""

    def apply(self, state: State) -> None:
        state.best_model = self.best_model or state.best_model
        state.improvement = self.improvement or state.improvement
        state.evaluating = state.evaluating and self.evaluation.final
        state.totals.evaluations += 1
        state.evaluations.append(self.evaluation)
        del state.evaluations[:-_EVALUATIONS_KEPT]
        for name, value in self.evaluation.measures.items():
            known = state.best.setdefault(name, Extremes(lowest=value, highest=value))
            known.lowest, known.highest = min(known.lowest, value), max(known.highest, value)
