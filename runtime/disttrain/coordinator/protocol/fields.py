"""Field types that the coordinator's messages, reports and journal entries share."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from disttrain.job import names
from disttrain.transport.header import Role

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A whole number that the wire and numpy can hold."""

Partition = Annotated[int, Field(ge=0, lt=1024, exclude_if=lambda partition: partition == 0)]
"""Which process of a group, from 0. The first one is not written: most groups have one only."""
Partitions = Annotated[int, Field(ge=1, le=1024, exclude_if=lambda partitions: partitions == 1)]
"""How many processes a group has. One is not written."""

Text = Annotated[str, Field(max_length=65_536)]
"""A sentence, a path, an address, the tail of a log."""


class Strict:
    """Base of everything that is parsed: unknown fields are refused."""

    __slots__ = ()
    # A measure may be no number; as JSON's null it could not be read back.
    __pydantic_config__ = ConfigDict(extra="forbid", ser_json_inf_nan="constants")


class Tagged(Strict):
    """Base of the members of a union: the first field of their JSON, `kind`, tells them apart."""

    __slots__ = ()
    kind: str

    def __init_subclass__(cls, kind: str = "") -> None:
        if kind:
            cls.__annotations__ = {"kind": Literal[kind], **cls.__annotations__}
            cls.kind = kind
        elif "kind" not in cls.__annotations__:
            # `slots=True` makes each class twice. The second time it has the annotations already.
            message = f"{cls.__name__} has no kind"
            raise TypeError(message)


LENIENT = ConfigDict(extra="ignore", ser_json_inf_nan="constants")
"""For what had more fields in older journals."""


def name_of(role: Role, index: int) -> str:
    if role is Role.REPLICA:
        return names.replica_name(index)
    return names.shard_name(index) if role is Role.SHARD else names.COORDINATOR


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberId(Strict):
    """One process of one incarnation of a group."""

    role: Role
    index: Count
    """Of the group, in its role."""
    partition: Partition = 0
    """Of the process, in its group."""
    incarnation: Count
    """Number of the group's present incarnation, from 1; given by the coordinator."""

    @property
    def group(self) -> str:
        """Name of the group, whichever incarnation it is in."""
        return name_of(self.role, self.index)

    @property
    def name(self) -> str:
        """Of the process. The first one of a group speaks for it, under the group's name."""
        return f"{self.group}-{self.partition}" if self.partition else self.group

    def process_name(self, processes: int) -> str:
        """The name of the process as whoever starts it has it, of a group of so many."""
        if self.role is Role.REPLICA:
            return names.member_name(self.index, self.partition, processes)
        return self.group

    @property
    def speaker(self) -> "MemberId":
        """The first process of the same incarnation, which speaks for the group."""
        return replace(self, partition=0) if self.partition else self


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease(Strict):
    """The right to process samples [first, end) of a portion in one epoch."""

    id: Count
    """From 1, increasing over the job; a replica processes its leases in this order."""
    epoch: Count
    portion: Count
    first: Count
    """Position in the shuffled list of `permutation.portion_indices(...)`; pushes count their
    `lease_offset` from here: 0 is `first`.
    """
    end: Count

    @property
    def samples(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Position(Strict):
    """How far a sender is: its earlier leases are complete, and `offset` samples of this one."""

    lease: Count = 0
    """0 is before the first lease."""
    offset: Count = 0


START = Position()
"""Nothing processed yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress(Strict):
    """What an incarnation of a replica has finished: acknowledged by ALL shards, or skipped.

    A batch whose gradient was not finite counts as finished too, else its lease would never end.
    """

    position: Position = START
    samples: Count = 0
    """Samples of its pushes acknowledged by all shards, since its process started."""
    abandoned: tuple[Position, ...] = ()
    """Leases it was told are lost and has given up: where each ended (offset 0: not begun).

    Each until the coordinator names it no more among the lost ones. New work is given only when
    every lost lease was listed here or completed, so that repeats are counted exactly.
    """


NO_PROGRESS = Progress()
"""Of a process that has just started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SenderPosition(Strict):
    """How far one incarnation of a replica is at one shard."""

    index: Count
    incarnation: Count
    position: Position
    """Position of the last push that is applied completely at this shard."""
    samples: Count = 0
    """Samples of all its pushes that are applied completely at this shard (sum of the headers'
    `samples`).
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class LostUpdates(Strict):
    """What all incarnations of one shard together have lost of one incarnation of a replica."""

    index: Count
    incarnation: Count
    lost: Count
    """Acknowledged, and in the shard's values no more."""


MOST_DAMAGED = 64
"""Damaged checkpoints that a shard tells of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredSender(Strict):
    """What a restarted shard knows of one incarnation of a replica."""

    sender: SenderPosition
    """As in the checkpoint it restored; zeros if that holds nothing of this sender."""
    acknowledged: Count
    """Pushes of this sender that are in the values or lost (mapped file)."""
    lost: Count
    """Acknowledged, and in the values no more: the sum over all incarnations of this shard, and of
    those shards that are no more for which it answers, so that a report may be repeated. Known only
    if `acknowledged` is not 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored(Strict):
    """State with which a shard starts after its first incarnation, or when the job is resumed."""

    initialised: bool
    """False: it has no values (died before the first checkpoint) and needs an upload."""
    checkpoint: Count | None
    version: Count
    damaged: Annotated[tuple[Count, ...], Field(max_length=MOST_DAMAGED)] = ()
    """Newer checkpoints that this shard found damaged, the newest first."""
    senders: tuple[RestoredSender, ...] = ()
