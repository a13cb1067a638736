"""What the checkpoints that are kept hold, so that no restore can undo it. Pure.

The account of a sender's life is needed until the coordinator knows how far it got, and in each
checkpoint that a shard may go back to. A life that is over is therefore forgotten when all
checkpoints that are kept hold its end.
"""

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from disttrain.parameter_server.deliveries import SenderLife

Noted = TypeVar("Noted")


class NotesAtCuts(Generic[Noted]):
    """What was noted at the cut of each checkpoint of one life of a shard."""

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
    """Of one life of a shard."""

    def __init__(self, kept: int, over: Iterable[SenderLife] = ()) -> None:
        """`kept`: how many checkpoints are. `over`: lives that ended before this shard's began."""
        self._over = set(over)
        self._cuts: NotesAtCuts[frozenset[SenderLife]] = NotesAtCuts(kept)

    def end(self, life: SenderLife) -> None:
        """Nothing more of it is applied here, and the coordinator has journaled how far it got."""
        self._over.add(life)

    def cut(self, number: int, committed: int | None) -> frozenset[SenderLife]:
        """A checkpoint is about to be cut, after the last one that was committed.

        What it gives may be forgotten before.
        """
        covered = self._cuts.cut(number, frozenset(self._over), committed) or frozenset()
        forgotten = covered & self._over
        self._over -= forgotten
        return forgotten
