"""The journal in an object store: what is synced together becomes one object.

A generation is a snapshot of the state, segment 0, and the segments of decisions that follow it;
a new one is begun at each checkpoint, and when there are many segments. Nothing is answered before
its segment is written.

A request that failed may be carried out later all the same. So no name is used twice, and every
decision carries its number: what comes twice is folded once. A snapshot of which nothing is known
may become the newest generation at any time, so after it only a newer one can be trusted.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress

from disttrain.checkpoint import object_names
from disttrain.checkpoint.errors import CheckpointError, Corrupt, StoreAway
from disttrain.checkpoint.objects import Objects
from disttrain.coordinator.errors import JournalDamaged
from disttrain.coordinator.journal import entries, fold, lines, state
from disttrain.coordinator.journal.journal import Replayed
from disttrain.coordinator.journal.state import State
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_MOST_SEGMENTS = 200
"""A coordinator that comes back reads them all."""
_LARGEST_BYTES = 1 << 30
"""Of a journal no more is read."""

_NAME = re.compile(r"(?P<generation>[0-9]{10})-(?P<segment>[0-9]{6})")

_Generations = dict[int, dict[int, int]]
"""Bytes of objects, by generation and segment."""
_Lines = Mapping[int, list[bytes]]
"""What is in the lines of a generation, by segment, in order."""


def replay(objects: Objects) -> Replayed | None:
    """The state that the newest journal leads to; None without a journal.

    Raises JournalDamaged, StoreAway, StoreDenied.
    """
    generations = _generations(objects)
    for generation in sorted(generations, reverse=True):
        segments = _read(objects, generation, generations[generation])
        if segments.get(0):
            return _replayed(segments, _said(objects, generation, 0))
    if not generations:
        return None
    message = f"{objects.uri} holds a journal without a snapshot; restore from a checkpoint"
    raise JournalDamaged(message)


class ObjectJournal:
    """A `journals.DecisionJournal`."""

    def __init__(self, objects: Objects, clock: Callable[[], float] = time.time) -> None:
        self._objects = objects
        self._clock = clock
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
        # Never a number that an attempt had that may still arrive: of this life, or of one before
        # it, which was made earlier.
        self._generation = max(1 + max([self._generation, *generations]), int(self._clock()))
        self._doubtful = True
        self._objects.write(_name(self._generation, 0), lines.line(state.to_json(found)))
        self._doubtful = self._failed = False
        self._segment, self._decisions, self._backlog = 1, 0, []
        older = (number for number in generations if number < self._generation)
        self._objects.delete(_name(each, part) for each in older for part in generations[each])

    def append(self, decided: entries.Decided) -> None:
        """See `DecisionJournal`."""
        if decided and not self._doubtful:
            self._decisions += 1
            content = b"%d %s" % (self._decisions, entries.to_json(decided))
            self._backlog.append(lines.line(content))

    def catch_up(self, found: State) -> None:
        """See `DecisionJournal`."""
        if not self._doubtful:
            self._send()
            return
        with suppress(CheckpointError):
            self.begin(found)

    def sync(self) -> None:
        """See `DecisionJournal`. What failed once is left to `catch_up`, which is not so often."""
        if not self.is_behind:
            self._send()

    def close(self) -> None:
        """See `DecisionJournal`."""
        self._send()

    def _send(self) -> None:
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


def _name(generation: int, segment: int) -> str:
    return f"{object_names.JOURNAL}/{generation:010d}-{segment:06d}"


def _said(objects: Objects, generation: int, segment: int) -> str:
    return f"{objects.uri}/{_name(generation, segment)}"


def _generations(objects: Objects) -> _Generations:
    found: _Generations = defaultdict(dict)
    for name, size in objects.sizes(object_names.JOURNAL).items():
        match = _NAME.fullmatch(name.rpartition("/")[2])
        if match is not None:
            found[int(match["generation"])][int(match["segment"])] = size
    return found


def _read(objects: Objects, generation: int, sizes: Mapping[int, int]) -> _Lines:
    total = sum(sizes.values())
    if total > _LARGEST_BYTES:
        message = (
            f"the journal from {_said(objects, generation, 0)} on has {total} bytes; at most "
            f"{_LARGEST_BYTES} are read; resume from the last checkpoint"
        )
        raise JournalDamaged(message)
    segments = sorted(sizes)
    try:
        found = objects.read_all({_name(generation, one): sizes[one] for one in segments})
    except Corrupt as error:
        # It was listed: somebody has begun a newer generation meanwhile.
        message = f"the journal changed while it was read: {error}"
        raise StoreAway(message) from error
    return {
        one: _lines(found[_name(generation, one)], _said(objects, generation, one))
        for one in segments
    }


def _lines(content: bytes, name: str) -> list[bytes]:
    """All that have an end: on a disk, a death while the last is written leaves it without."""
    found = list(lines.good(content))
    if len(found) < content.count(b"\n"):
        message = f"{name} is damaged after line {len(found)}; resume from the last checkpoint"
        raise JournalDamaged(message)
    return found


def _replayed(segments: _Lines, name: str) -> Replayed:
    try:
        found = state.from_json(segments[0][0])
        decisions = 0
        for segment in sorted(segments.keys() - {0}):
            for content in segments[segment]:
                decisions = _fold(found, decisions, content, name)
    except ValueError as error:
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
