"""The journal in an object store: what is synced together becomes one object.

A generation is a snapshot of the state, segment 0, and the segments of decisions that follow it;
a new one is begun at each checkpoint, and when there are many segments. Nothing is answered before
its segment is written.

A request that failed may be carried out later all the same. So no name is used twice, and every
decision carries its number: what comes twice is folded once. A snapshot of which nothing is known
may become the newest generation at any time, so after it only a newer one can be trusted.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from pydantic import ValidationError

from disttrain.checkpoint import object_names
from disttrain.checkpoint.errors import CheckpointError
from disttrain.checkpoint.objects import Objects
from disttrain.coordinator.errors import JournalDamaged
from disttrain.coordinator.journal import entries, fold, lines, state
from disttrain.coordinator.journal.journal import Replayed
from disttrain.coordinator.journal.state import State
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_MOST_SEGMENTS = 200
"""A coordinator that comes back reads them all."""

_Generations = dict[int, dict[int, str]]
"""Names of objects, by generation and segment."""


def replay(objects: Objects) -> Replayed | None:
    """The state that the newest journal leads to; None without a journal.

    Raises JournalDamaged, StoreAway, StoreDenied.
    """
    generations = _generations(objects)
    if not generations:
        return None
    for generation in sorted(generations, reverse=True):
        segments = generations[generation]
        contents = objects.read_all([segments[number] for number in sorted(segments)])
        found = dict(zip(sorted(segments), contents, strict=True))
        if _has_snapshot(found):
            return _replayed(found, f"{objects.uri}/{segments[0]}")
    message = f"{objects.uri} holds a journal without a snapshot; restore from a checkpoint"
    raise JournalDamaged(message)


class ObjectJournal:
    """A `journals.DecisionJournal`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._generation = 0
        self._segment = 0
        """Of the next attempt."""
        self._decisions = 0
        """How many this generation was given."""
        self._backlog: list[bytes] = []
        self._failed = False
        """The last sync."""
        self._doubtful = False
        """Only a new generation can be trusted."""

    @property
    def is_behind(self) -> bool:
        """See `DecisionJournal`."""
        return self._failed or self._doubtful

    @property
    def is_long(self) -> bool:
        """See `DecisionJournal`."""
        return self._segment > _MOST_SEGMENTS and not self.is_behind

    def begin(self, found: State) -> None:
        """See `DecisionJournal`. Raises also StoreAway and StoreDenied."""
        generations = _generations(self._objects)
        # Never a number that an attempt of this process had.
        self._generation = 1 + max([self._generation, *generations])
        self._doubtful = True
        self._objects.write(_name(self._generation, 0), lines.line(state.to_json(found)))
        self._doubtful = self._failed = False
        self._segment, self._decisions, self._backlog = 1, 0, []
        older = (generations[number] for number in generations if number < self._generation)
        self._objects.delete(name for segments in older for name in segments.values())

    def append(self, decided: entries.Decided) -> None:
        """See `DecisionJournal`."""
        if decided and not self._doubtful:
            self._decisions += 1
            content = b"%d %s" % (self._decisions, entries.to_json(decided))
            self._backlog.append(lines.line(content))

    def catch_up(self, found: State) -> None:
        """See `DecisionJournal`."""
        if not self._doubtful:
            self.sync()
            return
        with suppress(CheckpointError):
            self.begin(found)

    def sync(self) -> None:
        """See `DecisionJournal`."""
        if self._doubtful or not self._backlog:
            return
        name = _name(self._generation, self._segment)
        self._segment += 1
        try:
            self._objects.write(name, b"".join(self._backlog))
        except CheckpointError as error:
            self._failed = True
            LOG.error("nothing is decided until the journal is written", reason=str(error))
            return
        self._backlog, self._failed = [], False

    def close(self) -> None:
        """See `DecisionJournal`."""
        self.sync()


def _name(generation: int, segment: int) -> str:
    return f"{object_names.JOURNAL}/{generation:08d}-{segment:06d}"


def _generations(objects: Objects) -> _Generations:
    found: _Generations = defaultdict(dict)
    for name in objects.sizes(object_names.JOURNAL):
        generation, _, segment = name.rpartition("/")[2].partition("-")
        if generation.isdecimal() and segment.isdecimal():
            found[int(generation)][int(segment)] = name
    return found


def _has_snapshot(segments: Mapping[int, bytes]) -> bool:
    return bool(list(lines.good(segments.get(0, b""))))


def _replayed(segments: Mapping[int, bytes], name: str) -> Replayed:
    try:
        found = state.from_json(next(lines.good(segments[0])))
        decisions = 0
        for segment in sorted(segments.keys() - {0}):
            for content in lines.good(segments[segment]):
                decisions = _fold(found, decisions, content, name)
    except (ValidationError, ValueError) as error:
        message = f"{name} begins a journal of another version: {error}"
        raise JournalDamaged(message) from error
    return Replayed(state=found, decisions=decisions)


def _fold(found: State, decisions: int, content: bytes, name: str) -> int:
    number, _, decided = content.partition(b" ")
    if int(number) <= decisions:
        return decisions
    if int(number) != decisions + 1:
        message = (
            f"decision {decisions + 1} after {name} is missing; resume from the last checkpoint"
        )
        raise JournalDamaged(message)
    fold.fold(found, entries.from_json(decided))
    return decisions + 1
