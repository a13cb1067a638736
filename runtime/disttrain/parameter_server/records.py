"""What a shard leaves behind: acknowledged counts, the ledger, histograms, its environment."""

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError

from disttrain.launch import atomic_file
from disttrain.parameter_server import acknowledged
from disttrain.parameter_server.acknowledged import AcknowledgedFile, Count
from disttrain.parameter_server.deliveries import Delivered, SenderIncarnation
from disttrain.parameter_server.ledger import Kind, Ledger, Record, fold
from disttrain.sandblaster.batch.batches import places
from disttrain.sandblaster.batch.programs import Program
from disttrain.transport.header import Header, Reason

ENVIRONMENT_FILE = "recording.json"
"""In the run's ledger folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A replay under others would not come to the same bits."""

    chunk_bytes: int
    """How vectors are cut: chunks of one update may be applied apart."""
    torch: str
    """Version of PyTorch."""
    cpu: str
    """Which of PyTorch's kernels: how many numbers are added at a time."""


_ENVIRONMENT = TypeAdapter(Environment)


def present_environment(chunk_bytes: int) -> Environment:
    return Environment(
        chunk_bytes=chunk_bytes,
        torch=str(torch.__version__),
        cpu=torch.backends.cpu.get_cpu_capability(),
    )


def write_environment(folder: Path, found: Environment) -> None:
    """Note them in a run's ledger folder. Raises OSError."""
    atomic_file.replace(folder / ENVIRONMENT_FILE, _ENVIRONMENT.dump_json(found, indent=1))


def read_environment(folder: Path) -> Environment | None:
    """What was noted; None if nothing was, or nothing that can be understood."""
    try:
        return _ENVIRONMENT.validate_json((folder / ENVIRONMENT_FILE).read_bytes(), strict=True)
    except (OSError, ValidationError):
        return None


@dataclass(slots=True)
class Records:
    """Both files may be missing: then nothing is written (tests, benchmarks)."""

    incarnation: int
    acknowledged: AcknowledgedFile | None = None
    losses_are_whole: bool = True
    """Else what earlier incarnations had counted was damaged."""
    ledger: Ledger | None = None
    every_chunk: bool = False
    """The manifest's `record`: chunks are written too, so that the run can be replayed."""
    folds: bool = False
    """The manifest's `audit` is summary."""
    pushes: int = 0
    staleness: Counter[int] = field(default_factory=Counter)
    """Complete pushes by staleness; -1 is unknown."""
    shortened: int = 0
    """Pushes whose sender scaled them down to the norm that the manifest allows."""
    corrected: dict[SenderIncarnation, int] = field(default_factory=dict)
    """Updates lost in all, of senders whose last lost one came again in this incarnation."""

    @property
    def num_uncounted(self) -> int:
        """Incarnations of senders whose losses could not be counted if this process died now.

        One more for all those of which what was counted is damaged.
        """
        now = 0 if self.acknowledged is None else len(self.acknowledged.uncounted)
        return now + (not self.losses_are_whole)

    @property
    def num_missing(self) -> int:
        return self.ledger.missing if self.ledger is not None else 0

    def pushed(self, header: Header, state: Delivered, rate: float) -> None:
        """A push is complete: stored before its answer leaves."""
        self.pushes += 1
        self.staleness[state.staleness] += 1
        if self.acknowledged is not None:
            incarnation = SenderIncarnation.of(header)
            self._acknowledge(self.acknowledged, incarnation, state)
        self._append(self._push_record(header, state, rate))

    def applied(self, header: Header, version: int, rate: float, live_replicas: int) -> None:
        if self.every_chunk:
            record = self._chunk_record(Kind.CHUNK_APPLIED, header, header.chunk)
            self._append(
                record._replace(
                    version=version, rate=rate, live_replicas=live_replicas, first=header.first
                )
            )

    def fetched(self, header: Header, chunk: int, live_replicas: int) -> None:
        if self.every_chunk:
            record = self._chunk_record(Kind.CHUNK_FETCHED, header, chunk)
            self._append(record._replace(live_replicas=live_replicas))

    def merged(self, version: int, fragment: int, samples: int) -> None:
        if self.every_chunk:
            merge = Record(kind=Kind.MERGED, version=version, samples=samples, chunk=fragment)
            self._append(merge)

    def committed(self, evaluation: int, command: Program) -> None:
        """One attempt for each group of an evaluation counts, if the command commits any."""
        groups = places(command.runs, len(command.commits))
        for group, attempt in zip(groups, command.commits, strict=True) if command.commits else ():
            self._append(
                Record(
                    kind=Kind.COMMITTED,
                    incarnation=command.coordinator,
                    sequence=evaluation,
                    version=command.number,
                    samples=command.samples,
                    lease=attempt,
                    lease_offset=group,
                )
            )

    def returned(self, checkpoint: int, command: int) -> None:
        self._append(Record(kind=Kind.RETURNED, sequence=checkpoint, version=command))

    def stopped(self, version: int) -> None:
        """This incarnation ends as it was told to, and its next one begins where it was."""
        self._append(Record(kind=Kind.STOPPED, version=version))

    def refused(self, header: Header, reason: Reason) -> None:
        """A push is given up; its earlier chunks stay in the values."""
        record = self._chunk_record(Kind.REFUSED, header, header.chunk)
        self._append(record._replace(reason=reason, samples=header.samples))

    def restored(self, checkpoint: int, version: int) -> None:
        """This incarnation begins with a checkpoint; said before anything else."""
        self._append(Record(kind=Kind.RESTORED, sequence=checkpoint, version=version))

    def resharded(self, shard: int, version: int) -> None:
        """This incarnation answers for a shard of a checkpoint of another number of shards."""
        self._append(Record(kind=Kind.TAKEN_OVER, version=version, chunk=shard))

    def lost(self, incarnation: SenderIncarnation, count: Count) -> None:
        """What all incarnations of this shard together have lost of a sender; before any update."""
        record = self._record_of(Kind.LOST, incarnation)
        self._append(record._replace(samples=count.lost, sequence=count.doubtful))

    def event(self, kind: Kind, incarnation: SenderIncarnation) -> None:
        self._append(self._record_of(kind, incarnation))

    def settled(self, version: int) -> None:
        """No rollback touches what is up to this version; in a thread, a disk may take its time."""
        ledger = self.ledger
        if self.folds and ledger is not None:
            shorten = partial(fold, version=version)
            threading.Thread(
                target=ledger.fold, args=(shorten,), name="ledger", daemon=True
            ).start()

    def forget(self, incarnations: Iterable[SenderIncarnation]) -> list[SenderIncarnation]:
        """Drops what is acknowledged of incarnations that are over; which ones.

        Of those that have lost something the account stays: their losses are told again and again.
        """
        file = self.acknowledged
        if file is None:
            return list(incarnations)
        forgotten = [
            incarnation for incarnation in incarnations if not file.count(incarnation).lost
        ]
        return forgotten if file.forget(forgotten) else []

    def _append(self, record: Record) -> None:
        if self.ledger is not None:
            self.ledger.append(record._replace(shard_incarnation=self.incarnation))

    def _acknowledge(
        self, file: AcknowledgedFile, incarnation: SenderIncarnation, state: Delivered
    ) -> None:
        before = file.count(incarnation)
        after = acknowledged.after_push(before, state)
        file.store(incarnation, after)
        if after.lost != before.lost:
            self.corrected[incarnation] = after.lost

    def _record_of(self, kind: Kind, incarnation: SenderIncarnation) -> Record:
        return Record(kind=kind, sender=incarnation.sender, incarnation=incarnation.incarnation)

    def _push_record(self, header: Header, state: Delivered, rate: float) -> Record:
        return Record(
            kind=Kind.PUSHED,
            role=header.role,
            sender=header.sender,
            incarnation=header.incarnation,
            read_incarnation=header.version_incarnation,
            sequence=header.sequence,
            version=state.version,
            read_version=header.version,
            samples=header.samples,
            lease=header.lease,
            lease_offset=header.lease_offset,
            staleness=state.staleness,
            chunks=header.chunks,
            rate=rate,
        )

    def _chunk_record(self, kind: Kind, header: Header, chunk: int) -> Record:
        return Record(
            kind=kind,
            role=header.role,
            vector=header.vector,
            sender=header.sender,
            incarnation=header.incarnation,
            sequence=header.sequence,
            chunk=chunk,
            chunks=header.chunks,
        )
