"""Which lives of senders a shard may forget: those whose end no restore can undo. Pure.

The account of a life is needed until the coordinator knows how far it got, and in each checkpoint
that a shard may go back to. A life that is over is therefore forgotten when all checkpoints that
are kept hold its end.
"""

from collections import deque
from collections.abc import Iterable

from disttrain.parameter_server.deliveries import SenderLife

Lives = frozenset[SenderLife]


class Coverage:
    """Of one life of a shard."""

    def __init__(self, kept: int, over: Iterable[SenderLife] = ()) -> None:
        """`kept`: how many checkpoints are. `over`: lives that ended before this shard's began."""
        self._kept = kept
        self._over = set(over)
        self._cuts: dict[int, Lives] = {}
        """What was over when a checkpoint was cut that is not known to be committed."""
        self._committed: deque[Lives] = deque()
        """The same of committed ones, the oldest first."""

    def end(self, life: SenderLife) -> None:
        """Nothing more of it is applied here, and the coordinator has journaled how far it got."""
        self._over.add(life)

    def cut(self, number: int, committed: int | None) -> Lives:
        """A checkpoint is about to be cut, after the last one that was committed.

        What it gives may be forgotten before.
        """
        if committed in self._cuts:
            self._committed.append(self._cuts[committed])
            self._cuts = {one: lives for one, lives in self._cuts.items() if one > committed}
        forgotten: Lives = frozenset()
        while len(self._committed) >= self._kept:
            forgotten |= self._committed.popleft() & self._over
        self._over -= forgotten
        self._cuts[number] = frozenset(self._over)
        return forgotten
