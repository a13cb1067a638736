"""How long each push or fetch took and how much it carried, until somebody asks."""

from collections import deque
from typing import NamedTuple

_KEPT = 4096
"""Transfers kept when nobody asks: the newest."""


class Transfer(NamedTuple):
    """One push to all shards, or one fetch from all of them."""

    seconds: float
    nbytes: int
    """Payload, without headers."""


class Transfers:
    """Filled by one thread, emptied by another."""

    def __init__(self) -> None:
        self._new: deque[Transfer] = deque(maxlen=_KEPT)

    def add(self, seconds: float, nbytes: int) -> None:
        """Note a transfer that has ended."""
        self._new.append(Transfer(seconds, nbytes))

    def take(self) -> list[Transfer]:
        """Those since the last call, the oldest first."""
        return [self._new.popleft() for _ in range(len(self._new))]
