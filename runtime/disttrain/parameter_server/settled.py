"""Up to which version a shard is never rolled back: that of the oldest checkpoint kept. Pure."""

from collections import deque


class Settled:
    """Of one life of a shard."""

    def __init__(self, kept: int) -> None:
        """`kept`: how many checkpoints are."""
        self._cuts: dict[int, int] = {}
        """Versions of checkpoints that are not known to be committed, by number."""
        self._committed: deque[int] = deque(maxlen=kept)
        """The same of committed ones, the oldest first."""

    def cut(self, number: int, version: int, committed: int | None) -> int | None:
        """A checkpoint is being cut at a version, after the last one that was committed.

        The settled version, if this moved it; None else.
        """
        settled = None
        if committed in self._cuts:
            self._committed.append(self._cuts[committed])
            self._cuts = {one: at for one, at in self._cuts.items() if one > committed}
            is_full = len(self._committed) == self._committed.maxlen
            settled = self._committed[0] if is_full else None
        self._cuts[number] = version
        return settled
