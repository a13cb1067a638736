"""Which chunk of which push may be applied: at most once, whatever the network does.

Pure. A sender has one push under way at a shard. Its chunks are applied in their order: exactly the
next one is taken, everything before it is a duplicate, everything after it came too early. The
table is part of a checkpoint, so that a restored shard knows what its values contain. The account
of an incarnation that is over is forgotten when all checkpoints that are kept hold its end.
"""

from collections import deque
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, TypeVar

from disttrain.parameter_server.messages import MOST_PUSHES_TOLD
from disttrain.transport.header import Header, Reason


class Decision(Enum):
    """What is to be done with a chunk."""

    APPLY = auto()
    DUPLICATE = auto()
    """It was applied before, or belongs to a push that is over."""
    OUT_OF_ORDER = auto()
    """Another one is expected; the sender has to say HELLO."""
    UNKNOWN_SENDER = auto()
    """Not admitted (yet)."""
    OLD_INCARNATION = auto()
    """Fenced."""
    REFUSED_BEFORE = auto()
    """Belongs to the push that was given up."""


class SenderIncarnation(NamedTuple):
    """One incarnation of one replica."""

    sender: int
    incarnation: int

    @classmethod
    def of(cls, header: Header) -> "SenderIncarnation":
        """Who sends the message."""
        return cls(header.sender, header.incarnation)

    def forget_in(self, table: "MutableMapping[SenderIncarnation, Any]") -> None:
        """Delete what a table has of this incarnation and of earlier ones."""
        for known in [known for known in table if known.sender == self.sender]:
            if known.incarnation <= self.incarnation:
                del table[known]


class ChunkName(NamedTuple):
    """Which chunk of which push."""

    sequence: int
    chunk: int
    chunks: int


WINDOW_PUSHES = 64
"""A sender's mean staleness is of its latest 64 to 127 pushes."""


class Delivered(NamedTuple):
    """What a shard holds of one incarnation of a sender; whole numbers of 64 bits.

    A tuple, since each chunk of a push replaces it: that of a frozen dataclass takes 4 us, not 1.
    """

    sequence: int = 0
    """Last push that is over: applied, given up, left out or lost in a rollback. They count from
    1."""
    pushes: int = 0
    """Pushes applied completely, in these values."""
    next_chunk: int = 0
    """Chunks applied of the push after `sequence`."""
    chunks: int = 0
    """How many that push has; 0 before its first."""
    schedule_samples: int = 0
    """Samples processed before that push. All of its chunks get this and the next three, though
    updates of others go on meanwhile."""
    first_steps: int = 0
    """Updates in the values before it."""
    first_staleness: int = 0
    """Its staleness at its first chunk."""
    first_live_replicas: int = 0
    refused: int = 0
    """Last push that was given up."""
    partial_pushes: int = 0
    """Pushes of which only some chunks are in the values."""
    lease: int = 0
    lease_offset: int = 0
    """Position after the last push that was applied completely."""
    samples: int = 0
    version: int = 0
    """Version of the shard after that push, and its staleness, for when the answer was lost."""
    staleness: int = -1
    staleness_sum: int = 0
    staleness_count: int = 0
    """Over the latest pushes applied completely whose staleness is known. At twice WINDOW_PUSHES
    both are halved, so that the mean follows what changes."""
    is_stale: int = 0
    """Whether `refused` was, in place of holding what is not finite."""

    @property
    def mean_staleness(self) -> float:
        """0 before the first push whose staleness is known."""
        return self.staleness_sum / max(1, self.staleness_count)

    @property
    def why_refused(self) -> Reason:
        return Reason.TOO_STALE if self.is_stale else Reason.NOT_FINITE

    def met(self, staleness: int) -> "Delivered":
        """A push is complete that was so stale; -1: nobody knows."""
        if staleness < 0:
            return self
        total, count = self.staleness_sum + staleness, self.staleness_count + 1
        if count >= 2 * WINDOW_PUSHES:
            total, count = total // 2, count // 2
        return self._replace(staleness_sum=total, staleness_count=count)

    @property
    def is_partial(self) -> bool:
        return self.next_chunk > 0


NOTHING = Delivered()


@dataclass(slots=True)
class Deliveries:
    """The table of all senders of one shard."""

    admitted: dict[int, int] = field(default_factory=dict)
    """Sender -> its incarnation that may push."""
    fenced: dict[int, int] = field(default_factory=dict)
    """Sender -> its last incarnation that may not."""
    delivered: dict[SenderIncarnation, Delivered] = field(default_factory=dict)

    def admit(self, sender: int, incarnation: int) -> None:
        """This incarnation may push from now on, no earlier one may. A fenced one stays fenced."""
        if incarnation > self.fenced.get(sender, 0):
            self.admitted[sender] = max(incarnation, self.admitted.get(sender, 0))
            self.fenced[sender] = self.admitted[sender] - 1

    def differences(
        self, incarnations: Mapping[int, int]
    ) -> tuple[list[SenderIncarnation], list[SenderIncarnation]]:
        """Which incarnations have to be admitted, and which fenced, so that only these may push.

        `incarnations`: sender -> incarnation.
        """
        new = [
            SenderIncarnation(*incarnation)
            for incarnation in incarnations.items()
            if self.admitted.get(incarnation[0]) != incarnation[1]
        ]
        gone = [
            SenderIncarnation(*incarnation)
            for incarnation in self.admitted.items()
            if incarnation[0] not in incarnations
        ]
        return new, gone

    def fence(self, sender: int, incarnation: int) -> Delivered:
        """This incarnation and all earlier ones may not push any more; what is here of this one."""
        self.fenced[sender] = max(incarnation, self.fenced.get(sender, 0))
        if self.admitted.get(sender, 0) <= self.fenced[sender]:
            self.admitted.pop(sender, None)
        return self.of(sender, incarnation)

    def of(self, sender: int, incarnation: int) -> Delivered:
        return self.delivered.get(SenderIncarnation(sender, incarnation), NOTHING)

    def standing(self, sender: int, incarnation: int) -> Decision:
        """APPLY if this incarnation may push and fetch, else why not."""
        if incarnation <= self.fenced.get(sender, 0):
            return Decision.OLD_INCARNATION
        if self.admitted.get(sender) != incarnation:
            return Decision.UNKNOWN_SENDER
        return Decision.APPLY

    def decide(self, sender: int, incarnation: int, name: ChunkName) -> Decision:
        """What to do with a chunk. Changes nothing: say `applied` afterwards."""
        standing = self.standing(sender, incarnation)
        if standing is not Decision.APPLY:
            return standing
        state = self.of(sender, incarnation)
        if name.sequence <= state.sequence:
            is_refused = name.sequence == state.refused
            return Decision.REFUSED_BEFORE if is_refused else Decision.DUPLICATE
        if name.sequence > state.sequence + 1 or name.chunk > state.next_chunk:
            return Decision.OUT_OF_ORDER
        if name.chunk < state.next_chunk:
            return Decision.DUPLICATE
        fits = name.chunk == 0 or name.chunks == state.chunks
        return Decision.APPLY if fits else Decision.OUT_OF_ORDER

    def hello(self, sender: int, incarnation: int, first_unacknowledged: int) -> Delivered:
        """A sender says which push it goes on with; where that is to begin is in the answer.

        Pushes between what is here and that one were acknowledged by an earlier incarnation of this
        shard and lost with it, or left out by the sender. An old or repeated hello changes nothing.
        """
        state = self.of(sender, incarnation)
        if first_unacknowledged > state.sequence + 1:
            state = _abandoned(state)._replace(sequence=first_unacknowledged - 1)
            self.delivered[SenderIncarnation(sender, incarnation)] = state
        return state

    def begin(
        self,
        incarnation: SenderIncarnation,
        *,
        chunks: int,
        samples: int = 0,
        steps: int = 0,
        staleness: int = 0,
        live_replicas: int = 0,
    ) -> None:
        """The first chunk of the next push is about to be applied: what all of its chunks get."""
        self.delivered[incarnation] = self.of(*incarnation)._replace(
            chunks=chunks,
            schedule_samples=samples,
            first_steps=steps,
            first_staleness=staleness,
            first_live_replicas=live_replicas,
        )

    def applied(self, sender: int, incarnation: int) -> bool:
        """The chunk that `decide` allowed is in the values. True: it was its push's last one."""
        sender_incarnation = SenderIncarnation(sender, incarnation)
        state = self.delivered[sender_incarnation]
        self.delivered[sender_incarnation] = state._replace(next_chunk=state.next_chunk + 1)
        return state.next_chunk + 1 == state.chunks

    def complete(self, sender: int, incarnation: int, after: Delivered) -> Delivered:
        """All chunks are in: `after` gives position, added samples, version and staleness."""
        sender_incarnation = SenderIncarnation(sender, incarnation)
        state = self.delivered[sender_incarnation]
        met = state.met(after.staleness)
        self.delivered[sender_incarnation] = after._replace(
            sequence=state.sequence + 1,
            pushes=state.pushes + 1,
            refused=state.refused,
            is_stale=state.is_stale,
            partial_pushes=state.partial_pushes,
            samples=state.samples + after.samples,
            staleness_sum=met.staleness_sum,
            staleness_count=met.staleness_count,
        )
        return self.delivered[sender_incarnation]

    def give_up(self, sender: int, incarnation: int, *, is_stale: bool = False) -> None:
        """The push under way is refused; its chunks so far stay in the values."""
        sender_incarnation = SenderIncarnation(sender, incarnation)
        state = self.of(sender, incarnation)
        over = state.sequence + 1
        self.delivered[sender_incarnation] = _abandoned(state)._replace(
            sequence=over, refused=over, is_stale=int(is_stale)
        )

    def complete_groups(self, groups: int, chunks: int) -> None:
        """After a restore: a group of chunks that change values together is here whole, or not.

        A push begins with so many groups of so many chunks. Nobody has the first ones of a group
        any more whose last one was not applied: they are to come again.
        """
        for incarnation, state in self.delivered.items():
            begun = state.next_chunk % chunks
            if begun and state.next_chunk < groups * chunks:
                self.delivered[incarnation] = state._replace(next_chunk=state.next_chunk - begun)

    def forget(self, incarnation: SenderIncarnation) -> None:
        """An incarnation that is over and may push no more; nothing is known of it from now on."""
        self.delivered.pop(incarnation, None)

    def copy(self) -> dict[SenderIncarnation, Delivered]:
        """The table as it is now, for a snapshot."""
        return dict(self.delivered)

    def restore(self, delivered: dict[SenderIncarnation, Delivered]) -> None:
        """Take over a snapshot's table. Who may push is not in it: the coordinator says that."""
        self.delivered = dict(delivered)


def _abandoned(state: Delivered) -> Delivered:
    return state._replace(
        next_chunk=0, chunks=0, partial_pushes=state.partial_pushes + int(state.is_partial)
    )


COLUMNS = ("sender", "incarnation", *Delivered._fields)
"""Of the table in a checkpoint: one row of int64 per incarnation."""


def to_rows(delivered: dict[SenderIncarnation, Delivered]) -> list[list[int]]:
    return [[*incarnation, *state] for incarnation, state in delivered.items()]


def from_rows(rows: Iterable[Iterable[int]]) -> dict[SenderIncarnation, Delivered]:
    """The table that `to_rows` gave. Raises TypeError for rows of another length."""
    return {
        SenderIncarnation(sender, incarnation): Delivered(*numbers)
        for sender, incarnation, *numbers in rows
    }


Noted = TypeVar("Noted")


class NotesAtCuts(Generic[Noted]):
    """What was noted at the cut of each checkpoint of one incarnation of a shard."""

    def __init__(self, checkpoints: int) -> None:
        self._cuts: dict[int, Noted] = {}
        """By number, at those that are not known to be committed."""
        self._committed: deque[Noted] = deque(maxlen=checkpoints)
        """At committed ones, the oldest first."""

    def cut(self, number: int, noted: Noted, committed: int | None) -> Noted | None:
        """A checkpoint is being cut, after the last one that was committed.

        What was noted at the oldest one that is kept, if that is another one now; None else.
        """
        oldest = None
        if committed in self._cuts:
            self._committed.append(self._cuts[committed])
            self._cuts = {one: at for one, at in self._cuts.items() if one > committed}
            is_full = len(self._committed) == self._committed.maxlen
            oldest = self._committed[0] if is_full else None
        self._cuts[number] = noted
        return oldest


class Coverage:
    """Of one incarnation of a shard."""

    def __init__(self, kept: int, over: Iterable[SenderIncarnation] = ()) -> None:
        """`kept`: how many checkpoints are. `over`: who ended before this shard began."""
        self._over = set(over)
        self._cuts: NotesAtCuts[frozenset[SenderIncarnation]] = NotesAtCuts(kept)

    def end(self, incarnation: SenderIncarnation) -> None:
        """Nothing more of it is applied here, and the coordinator has journaled how far it got."""
        self._over.add(incarnation)

    def cut(self, number: int, committed: int | None) -> frozenset[SenderIncarnation]:
        """A checkpoint is about to be cut, after the last one that was committed.

        What it gives may be forgotten before.
        """
        covered = self._cuts.cut(number, frozenset(self._over), committed) or frozenset()
        forgotten = covered & self._over
        self._over -= forgotten
        return forgotten


class MostWork(NamedTuple):
    """Of one push, as the manifest has it."""

    steps: int
    samples: int
    """Of one step."""


def unbelievable(header: Header, incarnation: int, count: int, most: MostWork | None) -> str:
    """What of a push no honest replica can say, since it moves more than work does; or empty.

    `incarnation`, `count`: of the shard, and of its updates. `most`: None where nobody knows.
    """
    if not 0 < header.scale <= 1:
        # Clipping only makes smaller: anything else would overflow or climb.
        return f"scale {header.scale} is not above 0 and at most 1"
    if header.version_incarnation == incarnation and header.version > count:
        return f"computed on version {header.version} of {count}"
    if most is not None and header.samples > MOST_PUSHES_TOLD * most.steps * most.samples:
        return _too_much(header, f"counts {header.samples} samples", most)
    return ""


def too_heavy(header: Header, most: MostWork) -> str:
    """Steps and samples that a merge would weigh too much; or empty."""
    steps, samples = header.local_steps, header.local_samples
    if 0 < steps <= most.steps and samples <= steps * most.samples:
        return ""
    return _too_much(header, f"is of {steps} steps and {samples} samples", most)


def _too_much(header: Header, said: str, most: MostWork) -> str:
    return (
        f"push {header.sequence} {said}, and can hold 1 to {most.steps} steps of up to "
        f"{most.samples} samples: its replica has to follow the batch size and the steps between "
        "pushes that the manifest has"
    )
