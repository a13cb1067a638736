"""The replica's append-only log: fixed records, each written by one call, so kill -9 loses none.

One file per incarnation, `replica-{index}.i{incarnation}.bin` in the run's ledger folder. Each
further partition of a divided model has one, `replica-{index}-{partition}.i{incarnation}.bin`, of
what its shards have answered; the rest is in the first one's. What it
acknowledges and which leases it began are always in it; with `record: true` also every step, fetch
and adoption, from which `disttrain replay` repeats the run. Records of one thread are in the order
of what happened; those of several threads are not among each other. Those that a full disk refuses
are left out. With `audit: summary` answers are folded, see `fold`.
"""

import itertools
import struct
import time
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from disttrain.coordinator.protocol.fields import Position
from disttrain.job import names
from disttrain.parameter_server.client import Push, PushResult, Version
from disttrain.replica.work import WorkItem
from disttrain.telemetry import folding, record_file
from disttrain.telemetry.folding import Mask, Records, Shape
from disttrain.telemetry.record_file import RecordFile

FOLD_RECORDS = 10_000
"""Between two folds: a megabyte, folded in some milliseconds."""


class Kind(IntEnum):
    """What a record tells."""

    ACKNOWLEDGED = 1
    """A shard acknowledged push `number`; `version` is the shard's, in its `shard_incarnation`."""
    REFUSED = 2
    """A shard refused push `number`, for what it held or for its age."""
    LEASE_BEGUN = 3
    """The next step is the lease's first here: its batch begins at `first` in the portion, which is
    `lease_offset` in the lease. `number`: samples of the lease; 0 in logs of before."""
    NOT_FINITE = 4
    """Step `number` gave a gradient or loss that is not finite; `samples` are in no push. Of a push
    of several steps that is given up, one for each, all with the number of the last."""
    STEP = 5
    """Only with `record: true`, as everything below. Step `number` is of samples
    [first, first + samples) of the portion; `lease_offset` is the position after it."""
    FETCHED = 6
    """Fetch `number` is here; `version` is that of the shard's first chunk."""
    ADOPTED = 7
    """The next step computes with fetch `number`."""
    FETCHING_NOW = 8
    """What is under way is adopted, and a further fetch: of what an evaluation measures."""
    FLUSHED = 9
    """What is accrued is pushed now."""
    COMPUTED = 10
    """Step `number` computed `loss` and a gradient with this `squared_norm`."""
    MISSING = 11
    """Always the first record, whatever `record` says: so many (`samples`) others are not here,
    since the disk was full."""
    LEFT = 12
    """Whatever `record` says, the last record: this incarnation was told to end, everything that it
    pushed is acknowledged, and the rest of its work is returned."""
    ANSWERS_FOLDED = 13
    """With `audit: summary`: ACKNOWLEDGED of the pushes `first` to `number` by one incarnation of a
    shard, none left out; the first at `lease` (ns). The last one's fields, but all `samples`
    together."""

    FETCHING_AGAIN = 14
    """As FETCHING_NOW, of what is computed with: after an evaluation."""
    FETCHING_BESIDE = 15
    """A further fetch of what an evaluation measures, while computing goes on with its own."""
    MEASURED = 16
    """Fetch `number` is the one of FETCHING_BESIDE. Computing goes on with what it had."""
    HELD_BACK = 17
    """Whatever `record` says. Push `number` of `samples` was not sent to a shard, since one before
    it was refused for its age. The samples went back, whatever other processes have pushed."""


ANSWERS = Shape(
    one=Kind.ACKNOWLEDGED,
    folded=Kind.ANSWERS_FOLDED,
    number="number",
    owner="shard",
    incarnation="shard_incarnation",
    began="lease",
)


class Record(NamedTuple):
    """One event; fields that it does not use are zero. See `Kind`."""

    kind: int
    is_finite: int = 1
    reserved: int = 0
    shard: int = 0
    shard_incarnation: int = 0
    epoch: int = 0
    portion: int = 0
    number: int = 0
    version: int = 0
    staleness: int = 0
    samples: int = 0
    lease: int = 0
    lease_offset: int = 0
    first: int = 0
    loss: float = 0.0
    squared_norm: float = 0.0


_FORMAT = "Q BBH IIII QQ q QQQQ dd"
"""Of `time_ns` and the fields of a record."""
_STRUCT = struct.Struct(f"<{_FORMAT}")
RECORD = record_file.dtype_of(("time_ns", *Record._fields), _FORMAT)


class Gradient(NamedTuple):
    """What a step computed."""

    number: int
    samples: int
    loss: float
    squared_norm: float
    is_finite: bool


class Ledger:
    """Appends to the file of one incarnation; any thread. Without a path it writes nothing."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        records_steps: bool = False,
        folds: bool = False,
    ) -> None:
        """Open or make the file; `folds`: its answers, see `fold`. Raises OSError."""
        opened = time.time_ns()
        self._file = RecordFile(path, lambda lost: _head(opened, lost)) if path else None
        self._records_steps = records_steps and path is not None
        self._folds = folds
        self._numbers = itertools.count(1)

    @property
    def missing(self) -> int:
        return self._file.missing if self._file is not None else 0

    def acknowledged(self, push: Push, result: PushResult) -> None:
        self._append(
            Record(
                kind=Kind.ACKNOWLEDGED,
                shard=result.shard,
                shard_incarnation=result.version.incarnation,
                number=push.sequence,
                version=result.version.count,
                staleness=result.staleness,
                samples=push.samples,
                lease=push.lease,
                lease_offset=push.lease_offset,
            )
        )

    def refused(self, sequence: int) -> None:
        self._append(Record(kind=Kind.REFUSED, number=sequence))

    def held_back(self, push: Push, shards: Sequence[int]) -> None:
        """`shards`: to which it was not sent."""
        for shard in shards:
            self._append(
                Record(kind=Kind.HELD_BACK, shard=shard, number=push.sequence, samples=push.samples)
            )

    def lease_begun(self, item: WorkItem) -> None:
        begun = self._of(Kind.LEASE_BEGUN, item, item.end_offset - len(item.indices))
        self._append(begun._replace(number=item.lease_samples))

    def step(self, number: int, item: WorkItem) -> None:
        if self._records_steps:
            self._append(self._of(Kind.STEP, item, item.end_offset)._replace(number=number))

    def computed(self, gradient: Gradient, position: Position) -> None:
        """A step's gradient is there; `position` is the replica's after it."""
        if self._records_steps or not gradient.is_finite:
            self._append(
                Record(
                    kind=Kind.COMPUTED if gradient.is_finite else Kind.NOT_FINITE,
                    lease=position.lease,
                    lease_offset=position.offset,
                    **gradient._asdict(),
                )
            )

    def fetched(self, number: int, versions: tuple[Version, ...], shards: Sequence[int]) -> None:
        """`shards`: whose versions they are."""
        if self._records_steps:
            for shard, version in zip(shards, versions, strict=True):
                self._append(
                    Record(
                        kind=Kind.FETCHED,
                        shard=shard,
                        shard_incarnation=version.incarnation,
                        number=number,
                        version=version.count,
                    )
                )

    def left(self) -> None:
        """This incarnation ends as it was told to, with nothing under way."""
        self._append(Record(kind=Kind.LEFT))

    def mark(self, kind: Kind, number: int = 0) -> None:
        """Something of the compute thread that only a replay needs."""
        if self._records_steps:
            self._append(Record(kind=kind, number=number))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _of(self, kind: Kind, item: WorkItem, lease_offset: int) -> Record:
        return Record(
            kind=kind,
            epoch=item.epoch,
            portion=item.portion,
            samples=len(item.indices),
            lease=item.lease,
            lease_offset=lease_offset,
            first=item.first,
        )

    def _append(self, record: Record) -> None:
        if self._file is None:
            return
        self._file.append(_STRUCT.pack(time.time_ns(), *record))
        if self._folds and next(self._numbers) % FOLD_RECORDS == 0:
            self._file.fold(lambda content: fold(np.frombuffer(content, RECORD)).tobytes())


def _head(opened_ns: int, missing: int) -> bytes:
    return _STRUCT.pack(opened_ns, *Record(Kind.MISSING, samples=missing))


class LedgerOfAnswers(Ledger):
    """Of a partition other than the first: what all of them do is in the log of that one."""

    def _append(self, record: Record) -> None:
        if record.kind in _ANSWERS:
            super()._append(record)


_ANSWERS = frozenset({Kind.ACKNOWLEDGED, Kind.REFUSED, Kind.HELD_BACK, Kind.FETCHED})
SILENT = Ledger()
"""Writes nothing."""


def path_of(folder: Path, replica: int, incarnation: int, partition: int = 0) -> Path:
    name = names.replica_name(replica)
    process = f"{name}-{partition}" if partition else name
    return record_file.path_of(folder, process, incarnation)


def read(path: Path) -> Records:
    """All whole records of a file, as `RECORD`. Raises OSError."""
    return record_file.read(path, RECORD)


def fold(records: Records) -> Records:
    """What becomes of a log with `audit: summary`: every answer folded, no lease as it began.

    Answers to consecutive pushes of one incarnation of a shard become one record. An answer with an
    older version than the one before stays, for the audit.
    """
    kept = records[records["kind"] != Kind.LEASE_BEGUN]
    return folding.fold(kept, ~_goes_back(kept), ANSWERS)


def _goes_back(records: Records) -> Mask:
    """Answers of an older incarnation, or version, than the one of that shard before."""
    goes_back = np.zeros(len(records), np.bool_)
    answers = np.isin(records["kind"], [Kind.ACKNOWLEDGED, Kind.ANSWERS_FOLDED])
    for shard in np.unique(records["shard"][answers]):
        places = np.flatnonzero(answers & (records["shard"] == shard))
        incarnations, versions = (
            records[name][places].astype(np.int64) for name in ("shard_incarnation", "version")
        )
        older = (np.diff(incarnations) < 0) | (
            (np.diff(incarnations) == 0) & (np.diff(versions) < 0)
        )
        goes_back[places[1:][older]] = True
    return goes_back
