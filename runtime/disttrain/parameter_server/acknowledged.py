"""What a shard has acknowledged and lost of every sender: a mapped file that survives kill -9.

The pages belong to the kernel: what was stored is there for the next incarnation, however this one
ended (not if the machine loses power). A count is stored before the answer leaves, so the file
never says less than the sender knows. It changes as a whole: written beside the present one, and
made the present one by storing a single byte. A file that was damaged is put aside, and counted
anew.

Acknowledged is what was applied completely and counted before its answer left. Lost is what was
acknowledged and is in the values no more. Whether the last answer before a shard's death arrived,
only the sender knows: if not, it sends the same push again, and then it is not lost.
"""

import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from disttrain.parameter_server.deliveries import NOTHING, Delivered, SenderIncarnation
from disttrain.parameter_server.errors import NoRoomForCounts
from disttrain.telemetry import logs


@dataclass(frozen=True, slots=True)
class Count:
    """Of one incarnation of a sender at one shard; numbers of 64 bits."""

    pushes: int = 0
    """Acknowledged, and in the values."""
    sequence: int = 0
    """Number of the last push that is over."""
    lost: int = 0
    """Acknowledged by any incarnation of the shard, and in the values no more."""
    doubtful: int = 0
    """Number of the latest push among the lost: its sender may send it again. 0 is none."""


def after_push(count: Count, delivered: Delivered) -> Count:
    """One more push is in the values: `delivered` is what is known of its sender after it."""
    is_again = 0 < count.doubtful == delivered.sequence
    return Count(
        pushes=delivered.pushes,
        sequence=delivered.sequence,
        lost=count.lost - int(is_again),
        doubtful=count.doubtful if count.doubtful > delivered.sequence else 0,
    )


def after_rollback(count: Count, held: Delivered, *, may_regain: bool = True) -> Count:
    """A new incarnation begins with values that hold `held`. Said again, it changes nothing.

    Values may come back that were lost: an incarnation that found no newer checkpoint than N - 1,
    since N was not yet committed, is followed by one that begins with N. `may_regain` is False
    where `held` is no count of the same values as `count`.
    """
    lost = max(0, count.lost + count.pushes - held.pushes)
    last = max(count.doubtful, count.sequence)
    return Count(
        pushes=held.pushes,
        sequence=held.sequence,
        lost=lost if may_regain else max(lost, count.lost),
        # A doubtful push that the values hold is none.
        doubtful=last if last > held.sequence else 0,
    )


def rolled_back(
    counts: Mapping[SenderIncarnation, Count],
    delivered: Mapping[SenderIncarnation, Delivered],
    *,
    may_regain: bool = True,
) -> dict[SenderIncarnation, Count]:
    """The counts of all senders after a rollback to a checkpoint's table."""
    return {
        incarnation: after_rollback(
            count, delivered.get(incarnation, NOTHING), may_regain=may_regain
        )
        for incarnation, count in counts.items()
    }


LOG = logs.get(__name__)

_SENDER = struct.Struct("<B3xIQ")
"""Which count is the present one, if any, sender, incarnation."""
_COUNT = struct.Struct("<4Q")
_RECORD_BYTES = _SENDER.size + 2 * _COUNT.size
_FREE = 0
"""A place without a sender; all behind it are, too."""
_PRESENT = (1, 2)
"""The first or the second count is the present one."""
_GROW_RECORDS = 128
_LARGEST = 2**63 - 1
"""Of a number that can be told."""


class _Damaged(ValueError):
    """What is in the file was not written by a shard."""


class AcknowledgedFile:
    """Belongs to the shard's thread."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises NoRoomForCounts when the disk is full, else OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.uncounted: set[SenderIncarnation] = set()
        """Incarnations for which a full disk has no place: what they lose meanwhile is not
        known."""
        damaged = path.with_suffix(".damaged")
        try:
            self._open()
        except _Damaged:
            self.close()
            path.rename(damaged)
            LOG.error(
                "counts of acknowledged updates are damaged: those lost are counted at least",
                file=damaged,
            )
            self._open()
        self.is_whole = not damaged.exists()
        """Else what earlier incarnations had counted is not known."""

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._places: dict[SenderIncarnation, int] = {}
        self._counts: dict[SenderIncarnation, Count] = {}
        try:
            size = os.fstat(self._descriptor).st_size
            self._map(max(_GROW_RECORDS, size // _RECORD_BYTES))
        except NoRoomForCounts:
            os.close(self._descriptor)
            raise
        self._read()

    def counts(self) -> dict[SenderIncarnation, Count]:
        return dict(self._counts)

    def count(self, incarnation: SenderIncarnation) -> Count:
        return self._counts.get(incarnation, Count())

    def store(self, incarnation: SenderIncarnation, count: Count) -> None:
        """Set an incarnation's count. If the disk has no room for a new one, that is logged."""
        place = self._places.get(incarnation)
        if place is None:
            place = self._add(incarnation)
        if place is None:
            return
        self.uncounted.discard(incarnation)
        first = place * _RECORD_BYTES
        present = 2 if self._memory[first] == 1 else 1
        numbers = (count.pushes, count.sequence, count.lost, count.doubtful)
        _COUNT.pack_into(self._memory, first + _SENDER.size + (present - 1) * _COUNT.size, *numbers)
        # Last, and a single byte: before it, the old count holds, or the place is free.
        self._memory[first] = present
        self._counts[incarnation] = count

    def forget(self, incarnations: Iterable[SenderIncarnation]) -> bool:
        """Drop these incarnations; False if the disk has no room to do it.

        The others are written into a new file that takes the place of this one as a whole.
        """
        gone = set(incarnations) & self._places.keys()
        if not gone:
            return True
        unfinished = self._path.with_suffix(".new")
        try:
            unfinished.unlink(missing_ok=True)
            kept = {
                incarnation: count
                for incarnation, count in self._counts.items()
                if incarnation not in gone
            }
            if not _write(unfinished, kept):
                return False
            unfinished.rename(self._path)
        except (NoRoomForCounts, OSError) as error:
            LOG.warning("incarnations of senders are kept that could be forgotten", error=error)
            return False
        self.close()
        self._open()
        return True

    def sync(self) -> None:
        """What was stored survives the machine."""
        self._memory.flush()

    def close(self) -> None:
        """Gives up the file. May be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._memory.close()
            os.close(descriptor)

    def _add(self, incarnation: SenderIncarnation) -> int | None:
        place = len(self._places)
        if place == self._records and not self._grow(incarnation):
            return None
        _SENDER.pack_into(
            self._memory, place * _RECORD_BYTES, _FREE, incarnation.sender, incarnation.incarnation
        )
        self._places[incarnation] = place
        return place

    def _grow(self, incarnation: SenderIncarnation) -> bool:
        """A full disk must not end the training: it is said once that a sender goes uncounted."""
        try:
            self._map(self._records + _GROW_RECORDS)
        except NoRoomForCounts as error:
            if incarnation not in self.uncounted:
                LOG.error(
                    "losses of a sender cannot be counted",
                    sender=incarnation.sender,
                    incarnation=incarnation.incarnation,
                    error=error,
                )
            self.uncounted.add(incarnation)
            return False
        return True

    def _map(self, records: int) -> None:
        size = records * _RECORD_BYTES
        try:
            # Blocks of its own: to store into a hole of a full disk would kill the process.
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            message = (
                f"cannot reserve {size} bytes for {self._path}: {error.strerror}; make room on "
                "that disk: without this file it would not be known which updates a shard loses"
            )
            raise NoRoomForCounts(message) from error
        self._memory = mmap.mmap(self._descriptor, size)
        self._records = records

    def _read(self) -> None:
        """Raises _Damaged."""
        markers = self._memory[::_RECORD_BYTES].rstrip(bytes([_FREE]))
        for place, present in enumerate(markers):
            first = place * _RECORD_BYTES
            _, sender, incarnation = _SENDER.unpack_from(self._memory, first)
            sender_incarnation = SenderIncarnation(sender, incarnation)
            if present not in _PRESENT or sender_incarnation in self._places:
                raise _Damaged
            at = first + _SENDER.size + (present - 1) * _COUNT.size
            numbers = _COUNT.unpack_from(self._memory, at)
            if max(incarnation, *numbers) > _LARGEST:
                raise _Damaged
            self._places[sender_incarnation] = place
            self._counts[sender_incarnation] = Count(*numbers)


def _write(path: Path, counts: dict[SenderIncarnation, Count]) -> bool:
    file = AcknowledgedFile(path)
    try:
        for incarnation, count in counts.items():
            file.store(incarnation, count)
        file.sync()
        return not file.uncounted
    finally:
        file.close()
