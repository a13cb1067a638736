"""How many pushes of every sender this shard has acknowledged: a mapped file that survives kill -9.

The pages belong to the kernel: what was stored is there for the next life, however this one ended
(not if the machine loses power). A number is stored before the answer leaves, so the file never
says less than the sender knows; at most one push per sender was stored and not answered.
"""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from disttrain.parameter_server.deliveries import SenderLife

_RECORD = np.dtype(
    [("sender", "<u4"), ("incarnation", "<u4"), ("pushes", "<u8"), ("sequence", "<u8")]
)
_GROW_RECORDS = 128


@dataclass(frozen=True, slots=True)
class Count:
    """Of one life of a sender."""

    pushes: int
    """Acknowledged by this lineage of values: pushes lost in earlier rollbacks do not count."""
    sequence: int
    """Number of the last one."""


class AcknowledgedFile:
    """Belongs to the shard's thread. Incarnations count from 1; a record with 0 is free."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._places: dict[SenderLife, int] = {}
        self._map(max(1, os.fstat(self._descriptor).st_size // _RECORD.itemsize))
        for place, record in enumerate(self._records):
            if record["incarnation"]:
                life = SenderLife(int(record["sender"]), int(record["incarnation"]))
                self._places[life] = place

    def counts(self) -> dict[SenderLife, Count]:
        """Everything that is stored."""
        return {life: self.count(life) for life in self._places}

    def count(self, life: SenderLife) -> Count:
        """Of one life; zeros if it is not known."""
        if life not in self._places:
            return Count(0, 0)
        record = self._records[self._places[life]]
        return Count(int(record["pushes"]), int(record["sequence"]))

    def store(self, life: SenderLife, count: Count) -> None:
        """Set the numbers of a life."""
        place = self._places.get(life)
        if place is None:
            place = self._add(life)
        self._pushes[place] = count.pushes
        self._sequences[place] = count.sequence

    def close(self) -> None:
        """Gives up the file."""
        self._release()
        os.close(self._descriptor)

    def _add(self, life: SenderLife) -> int:
        place = len(self._places)
        if place == len(self._records):
            self._map(place + _GROW_RECORDS)
        self._records["sender"][place] = life.sender
        # The incarnation last: before it the record counts as free.
        self._records["incarnation"][place] = life.incarnation
        self._places[life] = place
        return place

    def _map(self, records: int) -> None:
        self._release()
        os.ftruncate(self._descriptor, records * _RECORD.itemsize)
        self._memory = mmap.mmap(self._descriptor, records * _RECORD.itemsize)
        self._records = np.frombuffer(self._memory, dtype=_RECORD)
        # Aligned words of 8 bytes: a store is never half there.
        self._pushes = self._records["pushes"]
        self._sequences = self._records["sequence"]

    def _release(self) -> None:
        self._records = self._pushes = self._sequences = np.zeros(0, dtype=_RECORD)
