"""What the journal says of checkpoints and evaluations, and what each entry means."""

from dataclasses import dataclass

from disttrain.coordinator.journal.state import Evaluation, OpenCheckpoint, Phase, Saved, State
from disttrain.coordinator.journal.totals import Extremes
from disttrain.coordinator.protocol.fields import Tagged
from disttrain.coordinator.protocol.orders import Checkpoint, ShardWritten

_EVALUATIONS_KEPT = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointBegun(Tagged, kind="checkpoint_begun"):
    """The ledger was cut."""

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

    def apply(self, state: State) -> None:
        state.evaluating = state.evaluating and self.evaluation.final
        state.totals.evaluations += 1
        state.evaluations.append(self.evaluation)
        del state.evaluations[:-_EVALUATIONS_KEPT]
        for name, value in self.evaluation.measures.items():
            known = state.best.setdefault(name, Extremes(lowest=value, highest=value))
            known.lowest, known.highest = min(known.lowest, value), max(known.highest, value)
