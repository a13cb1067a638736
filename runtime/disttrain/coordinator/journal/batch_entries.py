"""What the journal says of a batch method. `batch_fold.apply` gives each entry its meaning."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from disttrain.coordinator.protocol.fields import MemberId, Strict
from disttrain.job.sandblaster import Sandblaster
from disttrain.sandblaster.batch.groups import Result
from disttrain.sandblaster.batch.orders import Performed


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmStartEnded(Strict):
    """All samples of a batch method's warm start are processed."""

    kind: Literal["warm_start_ended"] = "warm_start_ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmStartDrained(Strict):
    """Nothing of it is under way any more: the next checkpoint is where it ends."""

    kind: Literal["warm_start_drained"] = "warm_start_drained"
    checkpoint: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmStartLeft(Strict):
    """A replica works for the batch method from now on."""

    kind: Literal["warm_start_left"] = "warm_start_left"
    member: MemberId


@dataclass(frozen=True, kw_only=True, slots=True)
class CourseBegun(Strict):
    """A batch method begins, or begins again before its first order was given."""

    kind: Literal["course_begun"] = "course_begun"
    rules: Sandblaster
    groups: int
    """Of portions, in the data."""
    seed: int
    shards: tuple[int, ...]
    """Their incarnations, by index."""
    cut: int | None = None
    """Checkpoint with which its warm start has ended, to which all shards are to return first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RulesChanged(Strict):
    """The manifest at a resume is another one than at the checkpoint."""

    kind: Literal["rules_changed"] = "rules_changed"
    rules: Sandblaster
    groups: int
    """Of portions, in the data."""
    changes: tuple[str, ...]
    """What is different and what comes of it, a sentence each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPerformed(Strict):
    """A shard has carried out the course's order."""

    kind: Literal["shard_performed"] = "shard_performed"
    shard: int
    performed: Performed


@dataclass(frozen=True, kw_only=True, slots=True)
class CourseSettled(Strict):
    """The point accepted last becomes the parameters first: something wants to read them."""

    kind: Literal["course_settled"] = "course_settled"


@dataclass(frozen=True, kw_only=True, slots=True)
class CourseInterrupted(Strict):
    """The evaluation under way is dropped, because the job is to stop."""

    kind: Literal["course_interrupted"] = "course_interrupted"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupGranted(Strict):
    """A replica got a group of portions."""

    kind: Literal["group_granted"] = "group_granted"
    member: MemberId
    holding: tuple[int, ...]
    """Attempts that it had."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupStaged(Strict):
    """Every shard holds the gradient of an attempt."""

    kind: Literal["group_staged"] = "group_staged"
    member: MemberId
    result: Result


@dataclass(frozen=True, kw_only=True, slots=True)
class ReturnBegun(Strict):
    """All shards go back to the newest checkpoint."""

    kind: Literal["return_begun"] = "return_begun"
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CutDamaged(Strict):
    """The newest checkpoint is not whole: all shards go back to the one before it."""

    kind: Literal["cut_damaged"] = "cut_damaged"
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardReturned(Strict):
    """A shard is there."""

    kind: Literal["shard_returned"] = "shard_returned"
    member: MemberId


@dataclass(frozen=True, kw_only=True, slots=True)
class CourseReturned(Strict):
    """All shards are there, or were never anywhere else."""

    kind: Literal["course_returned"] = "course_returned"
    shards: tuple[int, ...]
    """Their incarnations, by index."""


BatchEntry: TypeAlias = (
    WarmStartEnded
    | WarmStartDrained
    | WarmStartLeft
    | CourseBegun
    | RulesChanged
    | ShardPerformed
    | CourseSettled
    | CourseInterrupted
    | GroupGranted
    | GroupStaged
    | ReturnBegun
    | CutDamaged
    | ShardReturned
    | CourseReturned
)
