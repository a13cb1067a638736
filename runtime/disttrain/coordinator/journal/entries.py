"""What the journal says. `fold.apply` gives each entry its meaning."""

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter

from disttrain.coordinator.journal.batch_entries import BatchEntry
from disttrain.coordinator.journal.state import Evaluation, LifeState, Phase
from disttrain.coordinator.protocol.fields import (
    Lease,
    LostUpdates,
    MemberId,
    Progress,
    SenderPosition,
    Strict,
)
from disttrain.coordinator.protocol.messages import Restored
from disttrain.coordinator.protocol.orders import Order, ShardWritten
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import Placement


@dataclass(frozen=True, kw_only=True, slots=True)
class Restarted(Strict):
    """The coordinator itself came back from its journal."""

    kind: Literal["restarted"] = "restarted"


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseChanged(Strict):
    """The job goes on to another phase."""

    kind: Literal["phase_changed"] = "phase_changed"
    phase: Phase
    now: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StopAsked(Strict):
    """A person wants the job to end."""

    kind: Literal["stop_asked"] = "stop_asked"


@dataclass(frozen=True, kw_only=True, slots=True)
class DataKnown(Strict):
    """The first replica said how much data there is."""

    kind: Literal["data_known"] = "data_known"
    seed: int
    samples: int
    portion_size: int
    batch_size: int
    test_samples: int
    warm_start: int | None = None
    """Samples that a batch method begins with, if it has a warm start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutKnown(Strict):
    """The first replica described the model."""

    kind: Literal["layout_known"] = "layout_known"
    layout: ModelLayout


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed(Strict):
    """Who holds what from now on."""

    kind: Literal["placed"] = "placed"
    placement: Placement


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberJoined(Strict):
    """A new life of a process."""

    kind: Literal["member_joined"] = "member_joined"
    member: MemberId
    instance: str
    pid: int
    address: str
    metrics_address: str
    own_data: bool
    place: str = ""
    now: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRestored(Strict):
    """A shard's new life says what it came back with."""

    kind: Literal["shard_restored"] = "shard_restored"
    member: MemberId
    restored: Restored


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCorrected(Strict):
    """An update that a shard reported as lost was sent again: its answer had not arrived."""

    kind: Literal["loss_corrected"] = "loss_corrected"
    shard: int
    sender: LostUpdates


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberLost(Strict):
    """A life has ended; a replica's last position is asked from the shards unless it left."""

    kind: Literal["member_lost"] = "member_lost"
    member: MemberId
    state: LifeState
    reason: str
    shards: tuple[int, ...] = ()
    """Shards to be asked."""
    replica: ReplicaReport | None = None
    """Its last report."""
    shard: ShardReport | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardConfigured(Strict):
    """A shard knows its ranges."""

    kind: Literal["shard_configured"] = "shard_configured"
    member: MemberId


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardInitialised(Strict):
    """A shard has all its values."""

    kind: Literal["shard_initialised"] = "shard_initialised"
    member: MemberId


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderIssued(Strict):
    """An order was given."""

    kind: Literal["order_issued"] = "order_issued"
    id: int
    member: MemberId
    order: Order
    shards: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderClosed(Strict):
    """An order was answered or is void."""

    kind: Literal["order_closed"] = "order_closed"
    id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochOpened(Strict):
    """Another pass over the data begins."""

    kind: Literal["epoch_opened"] = "epoch_opened"


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseGranted(Strict):
    """A replica got a range of samples."""

    kind: Literal["lease_granted"] = "lease_granted"
    member: MemberId
    lease: Lease


@dataclass(frozen=True, kw_only=True, slots=True)
class Progressed(Strict):
    """A replica has finished more."""

    kind: Literal["progressed"] = "progressed"
    member: MemberId
    progress: Progress
    non_finite: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LeasesExpired(Strict):
    """A silent replica lost its leases."""

    kind: Literal["leases_expired"] = "leases_expired"
    member: MemberId


@dataclass(frozen=True, kw_only=True, slots=True)
class Drained(Strict):
    """A replica pushes nothing more."""

    kind: Literal["drained"] = "drained"
    member: MemberId
    progress: Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class FenceAnswered(Strict):
    """A shard said how far a dead replica got there."""

    kind: Literal["fence_answered"] = "fence_answered"
    shard: int
    sender: SenderPosition
    partial_chunks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointBegun(Strict):
    """The ledger was cut."""

    kind: Literal["checkpoint_begun"] = "checkpoint_begun"
    number: int
    now: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPartWritten(Strict):
    """A shard's part of the checkpoint is on disk."""

    kind: Literal["shard_part_written"] = "shard_part_written"
    number: int
    shard: int
    part: ShardWritten


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointEnded(Strict):
    """The checkpoint is committed, or was removed."""

    kind: Literal["checkpoint_ended"] = "checkpoint_ended"
    number: int
    committed: bool
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationBegun(Strict):
    """A replica is asked to evaluate."""

    kind: Literal["evaluation_begun"] = "evaluation_begun"
    epoch: int
    now: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationEnded(Strict):
    """The measures are known."""

    kind: Literal["evaluation_ended"] = "evaluation_ended"
    evaluation: Evaluation


Entry: TypeAlias = Annotated[
    Restarted
    | PhaseChanged
    | StopAsked
    | DataKnown
    | LayoutKnown
    | Placed
    | MemberJoined
    | ShardRestored
    | LossCorrected
    | MemberLost
    | ShardConfigured
    | ShardInitialised
    | OrderIssued
    | OrderClosed
    | EpochOpened
    | LeaseGranted
    | Progressed
    | LeasesExpired
    | Drained
    | FenceAnswered
    | CheckpointBegun
    | ShardPartWritten
    | CheckpointEnded
    | EvaluationBegun
    | EvaluationEnded
    | BatchEntry,
    Field(discriminator="kind"),
]

Decided: TypeAlias = tuple[Entry, ...]
"""What one event led to: journaled as a whole or not at all."""

_DECIDED: TypeAdapter[Decided] = TypeAdapter(
    Decided, config=ConfigDict(ser_json_inf_nan="constants")
)


def to_json(decided: Decided) -> bytes:
    """One line of the journal, without its checksum."""
    return _DECIDED.dump_json(decided)


def from_json(content: bytes) -> Decided:
    """The entries again; raises pydantic's ValidationError."""
    return _DECIDED.validate_json(content, strict=True)
