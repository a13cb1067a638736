"""One run of one job on this machine: its folder, its processes' configs, its record."""

import errno
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from disttrain.job import defaults
from disttrain.job.credentials import Credentials
from disttrain.job.identity import Identity
from disttrain.job.location import Location
from disttrain.job.names import Role
from disttrain.job.spec import DistTrainJob
from disttrain.launch import atomic_file, linux
from disttrain.launch import config as launch_config
from disttrain.launch.atomic_file import KeptFile
from disttrain.launch.config import LaunchConfig
from disttrain.launch.errors import (
    CheckpointsUnusable,
    NothingToResume,
    NotJoinable,
    OutputFolderUnusable,
)
from disttrain.launch.run_folder import Reach, RunFolder, RunRecord
from disttrain.launcher import sockets_folder
from disttrain.launcher.plan import (
    Place,
    identities,
    joining,
    needs_credentials,
    plan,
    require_joinable,
    transport_kind,
)
from disttrain.transport.config import TransportKind

HOST = "127.0.0.1"
_ANOTHER_FOLDER = "choose a folder that you may write"


@dataclass(frozen=True, slots=True)
class Run:
    """A prepared run; nothing has been started. `close` frees the folder for others."""

    job: DistTrainJob
    folder: RunFolder
    place: Place
    configs: dict[str, LaunchConfig]
    _held: ExitStack
    """The lock of the folder, the sockets, the coordinator's port."""
    _record: KeptFile
    """run.json: told of each start, on a full disk, too."""
    _pids: dict[str, int] = field(default_factory=dict)

    def has_folder(self) -> bool:
        """Whether the folder is still there: the file whose lock this process holds lies in it."""
        return self.folder.lock_file.exists()

    def note_pid(self, name: str, pid: int) -> None:
        """Write the process id of a new incarnation into run.json. Raises OSError."""
        self._pids[name] = pid
        self.write_record()

    def write_record(self) -> None:
        """Write run.json. Raises OSError."""
        record = RunRecord(
            job_uid=self.place.job_uid,
            task_folder=self.place.task_folder,
            launcher_pid=os.getpid(),
            sockets=self.place.sockets,
            cores=self.place.cores,
            processes=self._pids,
            reach=self.place.reach,
        )
        self._record.replace(record.to_json())

    def close(self) -> None:
        self._record.close()
        self._held.close()


Issue = Callable[[Mapping[str, Identity]], Mapping[str, Credentials]]
"""Makes the credentials of processes, by name; only a job over TCP needs any."""

NewestCheckpoint = Callable[[Location], Path | None]
"""Finds the newest complete checkpoint at a location; its hashes are not checked."""


@dataclass(frozen=True, slots=True)
class Opening:
    """By what the processes of a run know each other, and who else can reach them."""

    issue: Issue
    reach: Reach | None = None
    """None: nobody of another machine."""


def new(job: DistTrainJob, folder: Path, task_folder: Path, opening: Opening) -> Run:
    """Prepare a new run in `folder`. Raises OutputFolderInUse when it is not empty.

    Raises OutputFolderUnusable when nothing can be written there, CheckpointsUnusable when nothing
    can be written where the manifest wants its checkpoints.
    Of several at the same moment one gets the folder, and the others write nothing into it.
    """
    run_folder, task_folder = RunFolder(folder.resolve()), task_folder.resolve()
    _require_utf8("--output", run_folder.path)
    _require_utf8("JOB.yaml", task_folder)
    _make_checkpoint_folder(job, run_folder)
    with run_folder.writable("--output", _ANOTHER_FOLDER), ExitStack() as held:
        _keep_ports(job, opening.reach, held)
        held.callback(os.close, run_folder.claim())
        atomic_file.replace(run_folder.job, defaults.written_out_text(job).encode())
        uid = uuid.uuid4().hex
        place = _place(job, run_folder, held, opening, task_folder=task_folder, uid=uid)
        return _prepared(job, run_folder, place, held.pop_all())


def resumed(
    job: DistTrainJob,
    folder: RunFolder,
    newest: NewestCheckpoint,
    opening: Opening,
    *,
    is_changed: bool = False,
) -> Run:
    """Prepare the next incarnation of the run in `folder`, from its newest checkpoint.

    `is_changed`: the job is another one than the folder's manifest describes, and is written there;
    what was there is kept beside it.
    Raises NotARunFolder, NothingToResume, OutputFolderUnusable, or OutputFolderInUse while it still
    runs; then nothing was changed.
    """
    record = folder.read_record()
    _require_utf8("DIR", folder.path)
    with folder.writable("DIR", "see to its permissions"), ExitStack() as held:
        held.callback(os.close, folder.lock())
        _keep_ports(job, opening.reach, held)
        checkpoint = newest(folder.checkpoints(job))
        if checkpoint is None and folder.summary.exists():
            # A run that was killed has its journal to go on from; one that ended has ended there.
            message = (
                f"the run in {folder.path} ended before its first checkpoint; "
                "begin anew with `disttrain run`, into another folder, or delete this one first"
            )
            raise NothingToResume(message)
        uid = record.job_uid
        task_folder = record.task_folder
        place = _place(job, folder, held, opening, task_folder=task_folder, uid=uid)
        place = replace(place, resume_from=checkpoint)
        if is_changed:
            atomic_file.replace(folder.job_before, folder.job.read_bytes())
            atomic_file.replace(folder.job, defaults.written_out_text(job).encode())
        for told_before in (folder.summary, folder.status, folder.resumed):
            told_before.unlink(missing_ok=True)
        return _prepared(job, folder, place, held.pop_all())


def _require_utf8(field: str, folder: Path) -> None:
    """Processes are told of folders in JSON. Raises OutputFolderUnusable."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        message = f"{field}: the name of {folder} is not UTF-8; choose a folder whose name is"
        raise OutputFolderUnusable(message) from error


def _make_checkpoint_folder(job: DistTrainJob, run: RunFolder) -> None:
    """Before anything of the run is there. Within the run's folder it is made with that."""
    if job.spec.checkpoint.is_object_store:
        return
    folder = run.checkpoints(job).folder
    if folder.is_relative_to(run.path):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        message = (
            f"spec.checkpoint.uri: {folder} takes no checkpoints ({error.strerror}); name a folder "
            "that can be made and written into"
        )
        raise CheckpointsUnusable(message) from error


def _place(
    job: DistTrainJob,
    folder: RunFolder,
    held: ExitStack,
    opening: Opening,
    *,
    task_folder: Path,
    uid: str,
) -> Place:
    """A new place; what it takes of the machine is freed by `held`."""
    port = 0
    found: Mapping[str, Credentials] = {}
    if opening.reach is None and transport_kind(job) is TransportKind.TCP:
        port = held.enter_context(reserve_port())
    if needs_credentials(job):
        found = opening.issue(identities(job, uid))
    return Place(
        run_folder=folder.path,
        task_folder=task_folder,
        job_uid=uid,
        sockets=sockets_folder.create(held),
        coordinator_port=port,
        cores=linux.usable_cores(),
        credentials=found,
        reach=opening.reach,
    )


def _keep_ports(job: DistTrainJob, reach: Reach | None, held: ExitStack) -> None:
    """Keep all ports that joiners are told of, before anything is made. Raises NotJoinable."""
    if reach is None:
        return
    require_joinable(job)
    last = reach.port + 1 + job.spec.shards
    for port in range(reach.port, last + 1):
        try:
            held.enter_context(reserve_port(reach.host, port))
        except (OSError, OverflowError) as error:
            message = (
                f"--joinable-at: {reach.host}:{port} cannot be listened on ({error}); name an "
                f"address of this machine, and a port of which {last - reach.port} more are free"
            )
            raise NotJoinable(message) from error


def _prepared(job: DistTrainJob, folder: RunFolder, place: Place, held: ExitStack) -> Run:
    run = Run(job, folder, place, plan(job, place), held, KeptFile(folder.record))
    run.write_record()
    launch_config.write(folder.config(Role.REPLICA), joining(job, place))
    return run


@contextmanager
def reserve_port(host: str = HOST, port: int = 0) -> Iterator[int]:
    """Keep a port for the block, by a socket that is bound and never listens; its number.

    The kernel gives this port to nobody who asks for any free one, nor to a connection. A listener
    that sets SO_REUSEADDR, as ours do, may be bound to it all the same, incarnation after
    incarnation: only a second listener is refused (ip(7), SO_REUSEADDR).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, port))
        yield taken.getsockname()[1]
