"""The entries of the journal, in the form of its lines.

Each entry's `apply` says what it means, and nothing else changes the state. Replaying a prefix of
the journal gives the state that the coordinator had when it wrote its last entry; so `kill -9` at
any point loses at most what nobody had been told.
"""

from collections.abc import Iterable
from typing import Annotated, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter

from disttrain.coordinator.journal import batch_entries, job_entries, member_entries
from disttrain.coordinator.journal.state import State

Entry: TypeAlias = Annotated[
    job_entries.Restarted
    | job_entries.PhaseChanged
    | job_entries.StopAsked
    | job_entries.DataKnown
    | job_entries.ContentKnown
    | job_entries.LayoutKnown
    | job_entries.Placed
    | member_entries.MemberJoined
    | member_entries.ShardRestored
    | member_entries.LossCorrected
    | member_entries.MemberLost
    | member_entries.JoinerRemoved
    | member_entries.FenceAnswered
    | member_entries.ShardConfigured
    | member_entries.ShardInitialised
    | member_entries.CommandIssued
    | member_entries.CommandClosed
    | member_entries.EpochOpened
    | member_entries.LeaseGranted
    | member_entries.Progressed
    | member_entries.LeasesExpired
    | member_entries.Drained
    | job_entries.CheckpointBegun
    | job_entries.ShardPartWritten
    | job_entries.CheckpointEnded
    | job_entries.EvaluationBegun
    | job_entries.EvaluationEnded
    | batch_entries.WarmStartEnded
    | batch_entries.WarmStartDrained
    | batch_entries.WarmStartLeft
    | batch_entries.RunBegun
    | batch_entries.RulesChanged
    | batch_entries.ShardPerformed
    | batch_entries.PointAccepted
    | batch_entries.RunInterrupted
    | batch_entries.GroupGranted
    | batch_entries.GroupStaged
    | batch_entries.RollbackBegun
    | batch_entries.SnapshotDamaged
    | batch_entries.ShardRolledBack
    | batch_entries.RunRolledBack,
    Field(discriminator="kind"),
]

Decided: TypeAlias = tuple[Entry, ...]
"""What one event led to: journaled as a whole or not at all."""

_DECIDED: TypeAdapter[Decided] = TypeAdapter(
    Decided, config=ConfigDict(ser_json_inf_nan="constants")
)


def to_json(decided: Decided) -> bytes:
    return _DECIDED.dump_json(decided)


def from_json(content: bytes) -> Decided:
    """The entries again; raises pydantic's ValidationError."""
    return _DECIDED.validate_json(content, strict=True)


def fold(state: State, journal: Iterable[Entry]) -> State:
    """The state after these entries; `state` itself is changed."""
    for entry in journal:
        entry.apply(state)
    return state
