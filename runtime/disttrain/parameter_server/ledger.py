"""The shard's append-only log of what it applied and gave out: fixed records, written at once.

One file per incarnation, `shard-{index}.i{incarnation}.bin` in the run's ledger folder. `disttrain
audit` and `disttrain replay` read it. A record is one write call, so that kill -9 loses none that
was answered; those that a full disk refuses are left out. With `audit: summary` those of updates
that no rollback can touch any more are folded, see `fold`.
"""

import struct
import time
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from disttrain.job import names
from disttrain.telemetry import folding, record_file
from disttrain.telemetry.folding import Mask, Records, Shape
from disttrain.telemetry.record_file import RecordFile


class Kind(IntEnum):
    """What a record tells."""

    PUSHED = 1
    """A push was applied completely; `version` is the shard's after it, `read_version` the one that
    its gradient was computed on, in the shard's incarnation `read_incarnation`."""
    CHUNK_APPLIED = 2
    """Only with `record: true`. `rate` includes the schedule, `first` is in the whole vector;
    buffers were merged as those of one of `live_replicas`."""
    CHUNK_FETCHED = 3
    """Only with `record: true`. `sequence` is the sender's fetch; there were `live_replicas`."""
    REFUSED = 4
    """A push was given up for what its chunk `chunk` held; `reason` says why."""
    FENCED = 5
    ADMITTED = 6
    RESTORED = 7
    """This incarnation began with checkpoint `sequence`; `version` is that of its values."""
    LOST = 8
    """So many (`samples`) pushes of a sender that earlier incarnations acknowledged, all of them
    together, are not here; the latest is `sequence`, if its sender may still send it again, else
    0."""
    MISSING = 9
    """Always the first record: so many (`samples`) others are not here, since the disk was full."""
    TAKEN_OVER = 10
    """With another number of shards than before: this incarnation answers for what the shard
    `chunk` of that time has lost, of which the checkpoint holds `version` updates."""
    STOPPED = 11
    """Always the last record: this incarnation was told to end, and all of its `version` updates
    are on disk."""
    COMMITTED = 12
    """Command `version` of a batch method added up the gradients of evaluation `sequence`: `lease`
    is the attempt that counts for the group `lease_offset`; all groups together have `samples`.
    `incarnation` is that of the coordinator that gave it."""
    RETURNED = 13
    """All shards went back to checkpoint `sequence`, whose last command is `version`."""
    PUSHES_FOLDED = 14
    """With `audit: summary`: PUSHED of the numbers `first` to `sequence` of one sender, none left
    out; the first at `read_version` (ns). The last one's fields, but all `samples` together."""
    COMMITS_FOLDED = 15
    """With `audit: summary`: COMMITTED of the `chunks` evaluations `first` to `sequence` that one
    coordinator commanded; the first at `read_version` (ns). `lease` is the CRC-32 of who counts."""
    MERGED = 16
    """Only with `record: true`. What was pushed since the last merge of fragment `chunk`, of
    `samples`, was merged into the parameters after update `version`."""


class Record(NamedTuple):
    """One event; fields that it does not use are zero. See `Kind`."""

    kind: int
    role: int = 0
    vector: int = 0
    reason: int = 0
    sender: int = 0
    incarnation: int = 0
    shard_incarnation: int = 0
    read_incarnation: int = 0
    sequence: int = 0
    version: int = 0
    read_version: int = 0
    samples: int = 0
    lease: int = 0
    lease_offset: int = 0
    staleness: int = 0
    chunk: int = 0
    chunks: int = 0
    rate: float = 0.0
    first: int = 0
    live_replicas: int = 0


_FORMAT = "Q BBBB IIII QQQQQQ q II d Q I"
"""Of `time_ns` and the fields of a record."""
_STRUCT = struct.Struct(f"<{_FORMAT}")
RECORD = record_file.dtype_of(("time_ns", *Record._fields), _FORMAT)


class Ledger:
    """Appends to the file of one incarnation."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises OSError."""
        opened = time.time_ns()
        self._file = RecordFile(
            path, lambda missing: _STRUCT.pack(opened, *Record(Kind.MISSING, samples=missing))
        )

    @property
    def missing(self) -> int:
        return self._file.missing

    def append(self, record: Record) -> None:
        """Write one record, with the present time; a full disk leaves it out."""
        self._file.append(_STRUCT.pack(time.time_ns(), *record))

    def fold(self, shorten: Callable[[NDArray[np.void]], NDArray[np.void]]) -> None:
        """Put fewer records in place of those behind the first; see `RecordFile.fold`."""
        self._file.fold(lambda content: shorten(np.frombuffer(content, RECORD)).tobytes())

    def close(self) -> None:
        self._file.close()


def path_of(folder: Path, shard: int, incarnation: int) -> Path:
    return record_file.path_of(folder, names.shard_name(shard), incarnation)


def read(path: Path) -> NDArray[np.void]:
    """All whole records of a file, as `RECORD`. Raises OSError."""
    return record_file.read(path, RECORD)


PUSHES = Shape(
    one=Kind.PUSHED,
    folded=Kind.PUSHES_FOLDED,
    number="sequence",
    owner="sender",
    incarnation="incarnation",
    began="read_version",
)
_COUNTED = ("sequence", "lease_offset", "lease", "samples")
"""What all shards have to agree on: evaluation, group, attempt, samples of the batch."""


def fold(records: Records, version: int) -> Records:
    """The log with everything up to this version of the shard folded."""
    settled = records["version"] <= version
    shorter = folding.fold(records, settled & ~_breaks_order(records), PUSHES)
    return _fold_commits(shorter, version)


def _breaks_order(records: Records) -> Mask:
    """Updates whose version is not one more than the highest before."""
    begin = records[np.isin(records["kind"], [Kind.RESTORED, Kind.PUSHES_FOLDED])]["version"]
    pushed = records["kind"] == Kind.PUSHED
    versions = records["version"][pushed].astype(np.int64)
    before = np.append(np.int64(np.max(begin, initial=0)), versions[:-1])
    breaks = np.zeros(len(records), np.bool_)
    breaks[pushed] = versions != np.maximum.accumulate(before)[: len(versions)] + 1
    return breaks


def _fold_commits(records: Records, version: int) -> Records:
    settled = (records["kind"] == Kind.COMMITTED) & (records["version"] <= version)
    chosen = settled & ~_is_twice(records, settled) | (records["kind"] == Kind.COMMITS_FOLDED)
    if not settled.any():
        return records
    made = [_sum(run) for run in _runs(records[chosen])]
    place = int(np.flatnonzero(chosen)[0])
    rest = ~chosen
    return np.concatenate([records[:place][rest[:place]], *made, records[place:][rest[place:]]])


def _is_twice(records: Records, settled: Mask) -> Mask:
    pairs = np.stack([records["sequence"], records["lease_offset"]], axis=1)[settled]
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    return np.isin(records["sequence"], found[counts > 1][:, 0])


def _runs(commits: Records) -> Iterator[Records]:
    """One coordinator's, one after the other."""
    changes = np.flatnonzero(np.diff(commits["incarnation"].astype(np.int64))) + 1
    yield from (run for run in np.split(commits, changes) if len(run))


def _sum(run: Records) -> Records:
    """One record for all. The CRC goes on from that of an earlier fold."""
    is_folded = run["kind"] == Kind.COMMITS_FOLDED
    before, new = run[is_folded], run[~is_folded]
    made = run[-1:].copy()
    made["kind"] = Kind.COMMITS_FOLDED
    made["first"] = before["first"][0] if len(before) else run["sequence"][0]
    made["read_version"] = before["read_version"][0] if len(before) else run["time_ns"][0]
    made["chunks"] = int(before["chunks"].sum()) + len(np.unique(new["sequence"]))
    made["samples"] = run["samples"].min()
    made["lease"] = zlib.crc32(_agreed(new), int(before["lease"][0]) if len(before) else 0)
    return made


def _agreed(commits: Records) -> bytes:
    columns: list[NDArray[np.int64]] = [commits[name].astype("<i8") for name in _COUNTED]
    return np.stack(columns, axis=1).tobytes()
