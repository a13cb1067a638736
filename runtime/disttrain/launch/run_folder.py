"""The output folder of a run: every name in it is made here."""

import errno
import fcntl
import itertools
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from disttrain.job import location
from disttrain.job.location import Location
from disttrain.job.spec import DistTrainJob
from disttrain.launch.errors import NotARunFolder, OutputFolderInUse, OutputFolderUnusable


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """Where other machines reach a run: its processes listen on the ports behind `port`."""

    host: str
    port: int
    """Where joiners are taken in."""
    key: str
    """Fingerprint of the key of who takes joiners in."""

    @property
    def address(self) -> str:
        """Where joiners ask."""
        return self._at(0)

    @property
    def coordinator(self) -> str:
        return self._at(1)

    def shard(self, index: int) -> str:
        return self._at(2 + index)

    def _at(self, offset: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port + offset}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """What `resume` and `status` must know of a run; the content of run.json."""

    job_uid: str
    task_folder: Path
    """The manifest's folder."""
    launcher_pid: int
    sockets: Path
    """Folder of the Unix sockets of this incarnation of the run."""
    cores: int
    processes: dict[str, int]
    """Process ids by name."""
    reach: Reach | None = None
    """None: it is this machine's alone."""

    def to_json(self) -> bytes:
        return _RECORD.dump_json(self, indent=1)


_RECORD = TypeAdapter(RunRecord)
MODEL = "model.safetensors"
"""The job's result, here or beside its checkpoints."""
BEST_MODEL = "best.safetensors"
_LOOK_SECONDS = 0.2
"""`is_held` holds the lock itself, for less."""
_VISITOR = "visitor"
"""Whose copies of what lies in an object store they are."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths within one output folder."""

    path: Path

    @property
    def job(self) -> Path:
        """The effective manifest, overrides included."""
        return self.path / "job.yaml"

    @property
    def job_before(self) -> Path:
        """The same before `resume --set` has changed it."""
        return self.path / "job.before.yaml"

    @property
    def record(self) -> Path:
        """Ids, sockets and folders of the run: a `RunRecord`."""
        return self.path / "run.json"

    @property
    def status(self) -> Path:
        """How the job is now; written by the coordinator."""
        return self.path / "status.json"

    @property
    def summary(self) -> Path:
        """How the job ended; written by the coordinator."""
        return self.path / "summary.json"

    @property
    def metrics(self) -> Path:
        """Figures over time, one JSON object a line; written by the coordinator."""
        return self.path / "metrics.jsonl"

    @property
    def ledger(self) -> Path:
        """What each process wrote down of its own updates."""
        return self.path / "ledger"

    @property
    def model(self) -> Path:
        return self.path / MODEL

    @property
    def best_model(self) -> Path:
        """Of the best evaluation, if the manifest asks for it."""
        return self.path / BEST_MODEL

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def log(self, process: str) -> Path:
        """The log of the process with this name, all of its incarnations."""
        return self.logs / f"{process}.log"

    def config(self, process: str) -> Path:
        return self.path / "launch" / f"{process}.json"

    def failure(self, process: str) -> Path:
        """Where a process says why it must not be started again."""
        return self.path / "launch" / f"{process}.failure.json"

    @property
    def invitations(self) -> Path:
        """What the run knows of the tokens of its joiners."""
        return self.path / "invitations"

    @property
    def boots(self) -> Path:
        """Every start of the machine that the run has known; written by the coordinator."""
        return self.path / "launch" / "boots"

    @property
    def resumed(self) -> Path:
        """There when the journal is no longer that of the run's incarnation before.

        Written by the coordinator of a run that goes on from a checkpoint.
        """
        return self.path / "launch" / "resumed"

    @property
    def lock_file(self) -> Path:
        """Locked by the launcher as long as it lives."""
        return self.path / "launch" / "lock"

    def checkpoints(self, job: DistTrainJob) -> Location:
        """Where the job's checkpoints lie, for who comes to its folder. Raises NotARunFolder."""
        uid = ""
        if job.spec.checkpoint.is_object_store:
            # A pod's folder has no run.json; its manifest has the uid.
            uid = job.metadata.uid or self.read_record().job_uid
        return location.of(job, uid, self.path.absolute(), _VISITOR)

    def why_none(self, *, of_training: bool = False) -> str | None:
        """Why this is no folder of a run, or with `of_training` of one that has begun to train."""
        if not self.path.is_dir():
            return f"{self.path}: no such folder"
        if not self.job.exists():
            return f"{self.path} is no output folder of `disttrain run`: it has no {self.job.name}"
        if of_training and not self.ledger.is_dir():
            return f"{self.path} holds no run that has begun: it has no {self.ledger.name}/"
        return None

    @contextmanager
    def writable(self, field: str, remedy: str) -> Iterator[None]:
        """What the system says against writing into the folder is an OutputFolderUnusable.

        `field` names the folder in the command, `remedy` is what helps unless the disk is full.
        """
        try:
            yield
        except OSError as error:
            inside = error.filename not in {None, str(self.path)}
            why = f"{error.filename}: {error.strerror}" if inside else error.strerror
            helps = "make room on its disk" if error.errno in _FULL else remedy
            message = f"{field}: {self.path} takes no files ({why}); {helps}"
            raise OutputFolderUnusable(message) from error

    def create(self) -> None:
        """Make the folder with its parts.

        Raises OutputFolderInUse when it is not empty, OutputFolderUnusable when it is no folder.
        """
        if self.path.exists() and not self.path.is_dir():
            message = f"{self.path} is no folder; choose another one with --output"
            raise OutputFolderUnusable(message)
        if self.is_held():
            message = (
                f"a run{self._with_pid()} is using {self.path}; choose another folder with --output"
            )
            raise OutputFolderInUse(message)
        if self.path.exists() and any(self.path.iterdir()):
            message = f"{self.path} is not empty; choose another folder with --output"
            if self.record.exists():
                resume = f"`disttrain resume {self.path}`"
                message += f", go on by {resume} if its run has a checkpoint, or delete it"
            raise OutputFolderInUse(message)
        self.prepare()

    def claim(self) -> int:
        """Make the folder and hold it, as `lock` does. Raises OutputFolderInUse."""
        self.create()
        message = f"another run has just begun in {self.path}; choose another folder with --output"
        try:
            descriptor = self.lock()
        except OutputFolderInUse as error:
            raise OutputFolderInUse(message) from error
        # Several may have found the folder empty; the first to hold it has left its manifest.
        if self.job.exists():
            os.close(descriptor)
            raise OutputFolderInUse(message)
        return descriptor

    def prepare(self) -> None:
        """Make the parts that the launcher writes into, if they are missing, and the ledgers' one.

        A run that is stopped before a member has begun has no ledger, and is audited all the same.
        Raises OutputFolderUnusable when somebody else could change them.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_own(self.path)
        for part in (self.logs, self.lock_file.parent, self.ledger):
            part.mkdir(mode=0o700, exist_ok=True)

    def lock(self) -> int:
        """Hold the folder for this process; the descriptor frees it when closed, however it ends.

        Raises OutputFolderInUse while another launcher holds it, OutputFolderUnusable when somebody
        else could change what is in it.
        """
        self.prepare()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.lock_file, flags, 0o600)
        try:
            _lock(descriptor)
        except BlockingIOError as error:
            os.close(descriptor)
            message = (
                f"the run in {self.path} is still going on{self._with_pid(',')}; stop it first"
            )
            raise OutputFolderInUse(message) from error
        return descriptor

    def is_held(self) -> bool:
        """Whether a launcher holds the folder. Nothing is made or changed."""
        try:
            descriptor = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _with_pid(self, comma: str = "") -> str:
        """Whose run it is, as far as run.json says: empty in the first moments of one."""
        try:
            return f"{comma} with pid {self.read_record().launcher_pid}"
        except NotARunFolder:
            return ""

    def require_free(self) -> None:
        """Raise OutputFolderInUse while a launcher holds the folder.

        Raises OutputFolderUnusable when nobody can hold it.
        """
        with self.writable("DIR", "see to its permissions"):
            os.close(self.lock())

    def read_record(self) -> RunRecord:
        """The content of run.json. Raises NotARunFolder."""
        if not self.path.is_dir():
            message = f"{self.path}: no such folder"
            raise NotARunFolder(message)
        try:
            return _RECORD.validate_json(self.record.read_bytes())
        except (OSError, ValidationError) as error:
            message = (
                f"{self.path} is no output folder of `disttrain run`: "
                f"{self.record.name} is missing or damaged"
            )
            raise NotARunFolder(message) from error


def task_folder_of(manifest: Path) -> Path:
    """Where a manifest's task lies: beside it, or of a run's own where that began, if it is there.

    So a run's folder may be taken elsewhere, with the task beside its manifest.
    """
    run = RunFolder(manifest.absolute().parent)
    if manifest.name == run.job.name:
        with suppress(NotARunFolder):
            began_in = run.read_record().task_folder
            return began_in if began_in.is_dir() else run.path
    return run.path


def _lock(descriptor: int) -> None:
    """Raises BlockingIOError when somebody else keeps the lock: who only looks lets go at once."""
    end = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
        time.sleep(_LOOK_SECONDS / 20)


def default_folders(job_name: str, now: datetime) -> Iterator[Path]:
    """The output folders to try when none is named: runs/NAME-YYYYmmdd-HHMMSS, then -2 and so on.

    Of runs that begin in the same second each has its own.
    """
    first = Path("runs") / f"{job_name}-{now:%Y%m%d-%H%M%S}"
    yield first
    for number in itertools.count(2):
        yield first.with_name(f"{first.name}-{number}")


def require_own(folder: Path) -> None:
    """Raise OutputFolderUnusable if another user could put something into `folder`.

    What a run reads back from its folder decides what is executed.
    """
    found = folder.stat()
    user = os.geteuid()
    if found.st_uid != user:
        message = (
            f"{folder} belongs to another user ({found.st_uid}), who could change what the run "
            f"writes: run as that user, make the folder yours with `chown {user} {folder}`, "
            "or choose another one with --output"
        )
        raise OutputFolderUnusable(message)
    if found.st_mode & stat.S_IWOTH:
        message = (
            f"everybody may write into {folder}; take that away with `chmod o-w {folder}`, "
            "or choose a new folder with --output"
        )
        raise OutputFolderUnusable(message)
