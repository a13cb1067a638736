"""What the coordinator tells members to do, and what they answer.

A member runs each command id once and answers it with
`messages.CommandDone`; the coordinator repeats a command in every heartbeat reply until then.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import AliasChoices, Field

from disttrain.coordinator.protocol.fields import (
    LENIENT,
    Count,
    Progress,
    SenderPosition,
    Strict,
    Tagged,
    Text,
)
from disttrain.job.stop import Better, Judged
from disttrain.sandblaster.batch import programs
from disttrain.state.placement import Placement
from disttrain.state.vector import VectorText


@dataclass(frozen=True, kw_only=True, slots=True)
class Configure(Tagged, kind="configure"):
    """To a shard: who holds what. Answer `Done`."""

    __pydantic_config__ = LENIENT

    placement: Placement | None = None
    """None in the journal: it is put in as the command is sent."""
    train_samples: Count = 0
    """As in `messages.Joined`; in the journal 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Admit(Tagged, kind="admit"):
    """In older journals only: there, each replica was a command to each shard."""

    index: Count
    incarnation: Count
    live_replicas: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Fence(Tagged, kind="fence"):
    """To a shard: nothing of a replica up to this incarnation is applied from now on.

    Answer `Fenced`.
    """

    index: Count
    incarnation: Count
    live_replicas: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint(Tagged, kind="checkpoint"):
    """To a shard: write your part into this folder. Answer `ShardWritten` or `CommandFailed`."""

    number: Count
    folder: Text
    """Staging folder; the coordinator commits it when all parts are there."""
    committed: Count | None = None
    """The last checkpoint before this one that is complete."""
    final: bool = False
    """Nothing more is pushed; earlier versions did not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload(Tagged, kind="upload"):
    """To a replica: send your current parameters and buffers to these shards.

    Answer `Done` when all said UPLOADED.
    """

    shards: tuple[Count, ...]


class Split(StrEnum):
    """Which part of the task's data."""

    TRAIN = "train"
    TEST = "test"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepBest:
    """Of an evaluation: write the model that was measured to a file if it is better than before."""

    file: Text
    name: Text
    """Of the measure; empty: the loss."""
    wants_lower: bool
    best: float | None
    """What the model in the file measured; None: there is none."""

    @property
    def by(self) -> Judged:
        """What tells which model is better."""
        better = Better.LOWER if self.wants_lower else Better.HIGHER
        return Judged(name=self.name or None, better=better)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluate(Tagged, kind="evaluate"):
    """To a replica: evaluate between two steps. Answer `Evaluated` or `CommandFailed`."""

    split: Split
    batch_size: Count
    model_file: Text | None
    """None: freshly fetched parameters; else the path of a model.safetensors."""
    keep: KeepBest | None = None
    """None: whatever it finds, the model is not kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Export(Tagged, kind="export"):
    """To a replica: `checkpoint.export` of this folder. Answer `Done` or `CommandFailed`."""

    checkpoint: Text
    out: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Drain(Tagged, kind="drain"):
    """To a replica: stop training with nothing under way.

    Drop the leases not begun, finish the step, flush the accrued gradients, wait until every shard
    has acknowledged every push. Answer `Drained`. Commands still come afterwards.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaveWarmStart(Tagged, kind="leave_warm_start"):
    """To a replica, after `Drain`: the warm start is over, work for the batch method now.

    Answer `Done` when you have taken over the shards' values again.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class End(Tagged, kind="end"):
    """To every member: exit with code 0. Answer `Done` first."""

    reason: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Perform(Tagged, kind="perform"):
    """To a shard of a batch method: carry out a command of the method, once.

    Answer `Performed` or `CommandFailed`.
    """

    order: programs.Program


@dataclass(frozen=True, kw_only=True, slots=True)
class Decide(Tagged, kind="decide"):
    """To a shard of a batch method: winners so far, so that it need not keep the others.

    Answer `Done`.
    """

    news: programs.Decided


@dataclass(frozen=True, kw_only=True, slots=True)
class RollBack(Tagged, kind="return_to"):
    """To a shard of a batch method: all is again as in this checkpoint.

    So are the commands that it has carried out, and nothing is staged. Answer `Done` or
    `CommandFailed`.
    """

    checkpoint: Count


Command: TypeAlias = Annotated[
    Configure
    | Admit
    | Fence
    | Checkpoint
    | Upload
    | Evaluate
    | Export
    | Drain
    | LeaveWarmStart
    | End
    | Perform
    | Decide
    | RollBack,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberedCommand(Strict):
    """A command and its number, unique in the job."""

    id: Count
    order: Command


@dataclass(frozen=True, kw_only=True, slots=True)
class Done(Tagged, kind="done"):
    """The command was carried out; there is nothing to tell."""


class WhyFailed(StrEnum):
    """What a failed command leads to."""

    OTHER = "other"
    """What follows depends on the command."""
    OUT_OF_STEP = "out_of_step"
    """`Perform`: the shard lacks a vector or a gradient that the command counts on, or a command
    before it. All shards return to a checkpoint."""
    DAMAGED = "damaged"
    """`RollBack`: the checkpoint is not whole, or not there. All shards return to the one before
    it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandFailed(Tagged, kind="failed"):
    """The command could not be carried out."""

    message: Text
    why: WhyFailed = WhyFailed.OTHER


@dataclass(frozen=True, kw_only=True, slots=True)
class Fenced(Tagged, kind="fenced"):
    """How far the fenced sender got at this shard."""

    sender: SenderPosition
    acknowledged: Count = 0
    """Sequence number of its last push applied completely here."""
    partial_chunks: Count = 0
    """Chunks of a push that was applied only in part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorWritten(Strict):
    """A vector of a shard that is on disk, in a file of its own."""

    vector: Annotated[VectorText, Field(validation_alias=AliasChoices("vector", "tensor"))]
    """Older journals call it a tensor."""
    bytes: Count
    hash: Text
    """It gives the file its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardWritten(Tagged, kind="shard_written"):
    """One shard's part of a checkpoint is on disk (file and folder synced)."""

    __pydantic_config__ = LENIENT

    file: Text
    """Name within the folder."""
    bytes: Count
    hash: Text
    """As the checkpoint's manifest wants it."""
    version: Count
    vectors: tuple[VectorWritten, ...] = ()
    """Not in the file."""
    blocking_seconds: float = 0.0
    """Longest time that the shard answered nobody because of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated(Tagged, kind="evaluated"):
    """Sums of the task's measures over the split."""

    sums: dict[str, float]
    samples: Count
    loss: float | None
    """Mean loss per sample; None if the task's loss cannot be evaluated."""
    versions: tuple[Count, ...] = ()
    """Versions of the shards fetched from; empty for a file."""
    seconds: float = 0.0
    kept: bool = False
    """The model is in the file that the command named."""

    @property
    def means(self) -> dict[str, float]:
        """The measures per sample."""
        return {name: total / max(self.samples, 1) for name, total in self.sums.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Drained(Tagged, kind="drained"):
    """Everything is acknowledged; nothing more is pushed. Leases in hand ended where it says."""

    progress: Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Performed(Tagged, kind="performed"):
    """A shard has carried out a command of a batch method, now or before."""

    performed: programs.Performed


Result: TypeAlias = Annotated[
    Done | CommandFailed | Fenced | ShardWritten | Evaluated | Drained | Performed,
    Field(discriminator="kind"),
]
