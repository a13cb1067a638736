"""The journal in an object store: what is synced together becomes one object.

A generation is a snapshot of the state, segment 0, and the segments of decisions that follow it;
a new one is begun at each checkpoint, and when there are many segments. Nothing is answered before
its segment is written.

A request that failed may be carried out later all the same. So no name is used twice, and every
decision carries its number: what comes twice is folded once. A snapshot of which nothing is known
may become the newest generation at any time, so after it only a newer one can be trusted.

Nothing is written over what is there (`Objects.create`). A coordinator that claims the journal
seals the newest generation: it takes the name of its next segment, with nothing in it, and that
stays. An older coordinator then finds its next decision's name taken, and cannot answer what the
newer one would not replay. Where a store has no conditional writes, claims are found at each
checkpoint alone.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from disttrain.checkpoint import names
from disttrain.checkpoint.errors import AlreadyThere, CheckpointError, Corrupt, StoreAway
from disttrain.checkpoint.objects import Objects
from disttrain.coordinator.errors import JournalDamaged, Superseded
from disttrain.coordinator.journal import entries, lines, owners, state
from disttrain.coordinator.journal.journal import Replayed, replayed
from disttrain.coordinator.journal.owners import Claims
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
            name = _said(objects, generation, 0)
            return replayed(segments[0][0], _decisions(segments, name), name)
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
        self._tainted = False
        """Only a new generation can be trusted."""
        self._claims = Claims(objects)
        self._is_conditional = False
        """Whether the store is known to refuse what is there already."""

    @property
    def is_behind(self) -> bool:
        return self._failed or self._tainted

    @property
    def is_long(self) -> bool:
        return self._segment > _MOST_SEGMENTS and not self.is_behind

    def claim(self, identity: str) -> None:
        self._claims.claim(identity)
        self._is_conditional = self._claims.refuses_another()
        if not self._is_conditional:
            LOG.warning(
                "this store knows no conditional writes: that there is one coordinator, Kubernetes "
                "alone sees to",
                uri=self._objects.uri,
            )
        generations = _generations(self._objects)
        self._generation = max(generations, default=0)
        if self._generation and self._is_conditional:
            self._seal(max(generations[self._generation]))

    def require_owner(self) -> bool:
        return self._claims.is_newest()

    def begin(self, found: State) -> None:
        """See `DecisionJournal`. Raises also StoreAway and StoreDenied."""
        self.require_owner()
        generations = _generations(self._objects)
        if self._generation:
            owners.require_newest(self._generation, set(generations))
        self._generation = 1 + max([self._generation, *generations])
        if not self._is_conditional:
            # Never a number that an attempt of an earlier incarnation had that may still arrive.
            self._generation = max(self._generation, int(self._clock()))
        self._tainted = True
        self._create(_name(self._generation, 0), lines.line(state.to_json(found)))
        self.require_owner()
        self._tainted = self._failed = False
        self._segment, self._decisions, self._backlog = 1, 0, []
        self._objects.delete(
            _name(older, segment)
            for older, segments in generations.items()
            if older < self._generation
            for segment, size in segments.items()
            # Seals stay: however long an older coordinator was stopped, its name is taken.
            if size
        )

    def append(self, decided: entries.Decided) -> None:
        if decided and not self._tainted:
            self._decisions += 1
            content = b"%d %s" % (self._decisions, entries.to_json(decided))
            self._backlog.append(lines.line(content))

    def catch_up(self, found: State) -> None:
        if not self._tainted:
            self._send()
            return
        with suppress(CheckpointError):
            self.begin(found)

    def sync(self) -> None:
        """See `DecisionJournal`. What failed once is left to `catch_up`, which is not so often."""
        if not self.is_behind:
            self._send()

    def close(self) -> None:
        with suppress(Superseded):
            self._send()

    def _send(self) -> None:
        if self._tainted or not self._backlog:
            return
        name = _name(self._generation, self._segment)
        self._segment += 1
        try:
            self._create(name, b"".join(self._backlog))
        except CheckpointError as error:
            self._failed = True
            LOG.error("nothing is decided until the journal is written", reason=str(error))
            return
        # The name that failed may be the one that a newer coordinator has sealed: nothing is known
        # to be written until the store says that there is none.
        if self._failed and not self.require_owner():
            return
        self._backlog, self._failed = [], False

    def _create(self, name: str, content: bytes) -> None:
        """Raises Superseded if somebody else has taken the name, and as `Objects.create`."""
        try:
            self._objects.create(name, content)
        except AlreadyThere as error:
            message = f"another coordinator of this job has written first: {error}"
            raise Superseded(message) from error

    def _seal(self, segment: int) -> None:
        while True:
            segment += 1
            try:
                self._objects.create(_name(self._generation, segment), b"")
            except AlreadyThere:
                # The older one has just written it: it is replayed, and the next one sealed.
                continue
            return


def _name(generation: int, segment: int) -> str:
    return f"{names.JOURNAL}/{generation:010d}-{segment:06d}"


def _said(objects: Objects, generation: int, segment: int) -> str:
    return f"{objects.uri}/{_name(generation, segment)}"


def _generations(objects: Objects) -> _Generations:
    found: _Generations = defaultdict(dict)
    for name, size in objects.sizes(names.JOURNAL).items():
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


def _decisions(segments: _Lines, name: str) -> Iterator[bytes]:
    last = 0
    for segment in sorted(segments.keys() - {0}):
        for content in segments[segment]:
            number, _, decided = content.partition(b" ")
            if int(number) > last + 1:
                message = (
                    f"decision {last + 1} after {name} is missing; resume from the last checkpoint"
                )
                raise JournalDamaged(message)
            if int(number) == last + 1:
                last += 1
                yield decided
