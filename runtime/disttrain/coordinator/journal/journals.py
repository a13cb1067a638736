"""The coordinator's journal, whatever keeps it."""

from typing import Protocol

from disttrain.checkpoint import objects
from disttrain.coordinator.journal import entries, journal, object_journal
from disttrain.coordinator.journal.journal import Journal, Replayed
from disttrain.coordinator.journal.object_journal import ObjectJournal
from disttrain.coordinator.journal.state import State
from disttrain.job.location import Location


class DecisionJournal(Protocol):
    """The open journal. Belongs to one thread."""

    @property
    def is_behind(self) -> bool:
        """Some entries may not be kept: what keeps it is full, away, or fails."""

    @property
    def is_long(self) -> bool:
        """A new snapshot would make it faster to replay."""

    def claim(self, identity: str) -> None:
        """Takes the journal over: comes before it is replayed. Without it nobody is looked for.

        `identity`: of the place where this coordinator runs, the same in its next incarnation.
        Raises Superseded when that was followed by another one; OSError or CheckpointError.
        """

    def require_owner(self) -> bool:
        """Raises Superseded if somebody has claimed it since; False if that is not known now."""

    def begin(self, found: State) -> None:
        """Begins anew with a snapshot, which holds whatever was appended.

        Raises OSError or CheckpointError: then the journal goes on as it was, or is behind. Raises
        Superseded, after which nothing may be written, as do `catch_up` and `sync`.
        """

    def append(self, decided: entries.Decided) -> None:
        """Takes what one event led to: half of a decision is never replayed. Never raises."""

    def catch_up(self, found: State) -> None:
        """Writes what is missing, if that is possible now; `found`: what was decided until now."""

    def sync(self) -> None:
        """What was appended survives the machine, unless the journal is behind afterwards."""

    def close(self) -> None:
        """Syncs and closes. Never raises."""


def open_journal(location: Location) -> DecisionJournal:
    """The journal at a location; `begin` comes first."""
    if location.uri:
        return ObjectJournal(objects.open_objects(location.uri))
    return Journal(location.folder / journal.FOLDER)


def replay(location: Location) -> Replayed | None:
    """The state that the newest journal leads to; None without one.

    Raises JournalDamaged, and CheckpointError for an object store that does not answer.
    """
    if location.uri:
        return object_journal.replay(objects.open_objects(location.uri))
    return journal.replay(location.folder / journal.FOLDER)
