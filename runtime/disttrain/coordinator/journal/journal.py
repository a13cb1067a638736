"""The journal on disk: lines of JSON with a checksum, appended before anything is answered.

A file begins with a snapshot of the state and goes on with decisions; a new one is begun at each
checkpoint, so that replaying stays short. Decisions are numbered, and each line says up to which
number all were on disk when it was written: see `lines`. The open file holds space in reserve
(zeros behind the last line), so that a disk that fills up stops checkpoints long before it stops
decisions.

A sync that fails is never repeated on the same file: the kernel may have dropped what it could not
write, and would report success. A new file is begun instead, with the whole state.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from disttrain.checkpoint import durable
from disttrain.checkpoint.blobs import FolderBlobs
from disttrain.checkpoint.errors import NotWritten
from disttrain.coordinator.errors import JournalDamaged, Superseded
from disttrain.coordinator.journal import entries, lines, owners, state
from disttrain.coordinator.journal.owners import Claims
from disttrain.coordinator.journal.state import State
from disttrain.telemetry import logs

LOG = logs.get(__name__)

FOLDER = "journal"
"""The journal's folder, beside the checkpoints."""

_SUFFIX = ".jsonl"
_UNFINISHED = ".new"
_RESERVE_BYTES = 1 << 20
"""Some thousand decisions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """What a journal holds."""

    state: State
    decisions: int
    """How many it is made of, beside its snapshot."""


def replay(folder: Path) -> Replayed | None:
    """The state that the newest journal leads to; None without a journal. Raises JournalDamaged."""
    # An empty one was to be begun, and its writer died before it had a snapshot.
    files = [file for file in _files(folder) if file.stat().st_size]
    if not files:
        return None
    file = files[-1]
    try:
        snapshot, *decisions = lines.read(file.read_bytes())
    except lines.Damaged as error:
        message = (
            f"{file} is damaged before its end: {error}; resume the job from its last checkpoint"
        )
        raise JournalDamaged(message) from error
    except ValueError as error:
        message = f"{file} holds no snapshot; restore the job from a checkpoint"
        raise JournalDamaged(message) from error
    return replayed(snapshot, decisions, str(file))


def replayed(snapshot: bytes, decisions: Iterable[bytes], name: str) -> Replayed:
    """What these lead to. Raises JournalDamaged, by the `name` of the journal."""
    try:
        found, read = state.from_json(snapshot), list(decisions)
        for decided in read:
            entries.fold(found, entries.from_json(decided))
    except ValueError as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        message = f"{name} is of another version: {why}"
        raise JournalDamaged(message) from error
    return Replayed(state=found, decisions=len(read))


class Journal:
    """The open journal. Belongs to one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        self._length = 0
        self._reserved = 0
        """Bytes of the file that the disk has promised."""
        self._backlog = b""
        self._unsynced = False
        self._number = 0
        """Of the newest file that every replay will find."""
        self._tainted = False
        """A sync has failed: only a new file can be trusted."""
        self._decisions = 0
        """That this file was given."""
        self._synced = 0
        """How many of them are on disk."""
        self._taken = 0
        """The highest number that is this journal's, whatever has become of its file."""
        self._claims = Claims(FolderBlobs(folder))
        self._unowned = False
        """Claims could not be read: a newer one may have replayed less than was written here."""

    @property
    def is_behind(self) -> bool:
        """Some entries may not be on disk, or whose the journal is now is not known."""
        return bool(self._backlog) or self._tainted or self._unowned

    @property
    def is_long(self) -> bool:
        """Never: lines are read fast."""
        return False

    def claim(self, identity: str) -> None:
        self._claims.claim(identity)

    def require_owner(self) -> bool:
        """See `DecisionJournal`. Raises JournalDamaged, too, when the whole journal is gone."""
        if self._claims.is_newest():
            return True
        with contextlib.suppress(OSError):
            if not self._folder.exists():
                message = (
                    f"{self._folder} was deleted or renamed while the job ran; resume the job from "
                    "its last checkpoint, if that is still there"
                )
                raise JournalDamaged(message)
        return False

    def begin(self, found: State) -> None:
        """Begins a new file with a snapshot; the older ones are deleted.

        Raises OSError and NotWritten: then the journal goes on in the old file, or is behind.
        Raises Superseded.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self.require_owner()
        older = _files(self._folder)
        newest = max((int(file.stem) for file in older), default=0)
        if self._taken:
            owners.require_newest(self._taken, {newest})
        number = 1 + (self._number or newest) if self._taken == self._number else self._taken
        file = self._folder / f"{number:08d}{_SUFFIX}"
        unfinished = file.with_suffix(f".{self._claims.mine}{_UNFINISHED}")
        snapshot = lines.line(state.to_json(found))
        self._take(_write_durably(unfinished, snapshot), len(snapshot))
        # From here on a replay may read the new file, but after a crash of the machine also the
        # old one: nothing that is written to either is sure to be found.
        self._tainted = True
        if number != self._taken:
            _take_name(file)
            self._taken = number
        unfinished.rename(file)
        durable.sync_folder(self._folder)
        self._tainted = False
        self._number = number
        _delete([old for old in older if old != file])
        _delete(list(self._folder.glob(f"*{_UNFINISHED}")))
        self._reserve()

    def append(self, decided: entries.Decided) -> None:
        """Writes what one event led to, in one line: half of a decision is never replayed.

        It survives this process from then on. What a full disk refuses is kept for later: decide
        little while `is_behind`.
        """
        if self._tainted:
            # The new file will begin with what this leads to.
            return
        if decided:
            self._decisions += 1
            content = entries.to_json(decided)
            self._backlog += lines.decision(self._decisions, self._synced, content)
        try:
            self._write()
        except OSError as error:
            LOG.error("nothing is decided until the disk takes the journal", reason=str(error))

    def catch_up(self, found: State) -> None:
        """Writes what is missing, if the disk takes it now; `found`: what was decided until now."""
        with contextlib.suppress(OSError, NotWritten):
            if self._tainted:
                self.begin(found)
            else:
                self._write()

    def sync(self) -> None:
        """What was appended survives the machine, too, unless the journal is behind afterwards.

        Raises Superseded, JournalDamaged.
        """
        if not self._unsynced or self._tainted:
            return
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._tainted = True
            LOG.error("nothing is decided until a new journal is on disk", reason=str(error))
            return
        # Else the next iteration syncs and looks again.
        self._unowned = not self.require_owner()
        if self._unowned:
            return
        self._unsynced = False
        if not self._backlog:
            self._mark_synced()

    def close(self) -> None:
        """Syncs and closes. Nobody was told what a failing disk does not take."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._length)
            with contextlib.suppress(Superseded, JournalDamaged):
                self.sync()
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        """Raises OSError; what it wrote until then is written over next time."""
        if self._backlog:
            _write_all(self._descriptor, self._backlog, self._length)
            self._length += len(self._backlog)
            self._backlog = b""
            self._unsynced = True
            self._reserve()

    def _mark_synced(self) -> None:
        """From now on damage before this place is told from the end of a crash."""
        self._synced = self._decisions
        mark = lines.mark(self._synced)
        with contextlib.suppress(OSError):
            # The next sync takes it along; without it only less is known.
            _write_all(self._descriptor, mark, self._length)
            self._length += len(mark)

    def _reserve(self) -> None:
        """Takes space for what is to come, where the file system can promise it."""
        if self._length + _RESERVE_BYTES // 2 > self._reserved:
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._descriptor, self._length, _RESERVE_BYTES)
                self._reserved = self._length + _RESERVE_BYTES

    def _take(self, descriptor: int, length: int) -> None:
        """Goes on in this file, whose every byte is on disk."""
        old, self._descriptor = self._descriptor, descriptor
        self._length, self._reserved = length, 0
        self._backlog, self._unsynced, self._unowned = b"", False, False
        self._decisions = self._synced = 0
        if old >= 0:
            with contextlib.suppress(OSError):
                os.close(old)


def _files(folder: Path) -> list[Path]:
    found = folder.glob(f"*{_SUFFIX}")
    return sorted(file for file in found if file.stem.isdecimal())


def _take_name(file: Path) -> None:
    """Makes the file, empty, which nobody else may have done. Raises Superseded, NotWritten."""
    try:
        durable.take_name(file)
    except FileExistsError as error:
        message = f"another coordinator of this job has begun {file}"
        raise Superseded(message) from error


def _write_durably(path: Path, content: bytes) -> int:
    """The new file's descriptor, open for writing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        _write_all(descriptor, content, 0)
        os.fsync(descriptor)
    except OSError:
        os.close(descriptor)
        # On a full disk half a file would take the space that the next attempt needs.
        path.unlink(missing_ok=True)
        raise
    return descriptor


def _delete(files: list[Path]) -> None:
    """A file that stays only takes space: replays read the newest."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
