"""One run of one job on this machine: its folder, its processes' configs, its record."""

import json
import os
import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from disttrain.job.spec import DistTrainJob
from disttrain.launch import atomic_file
from disttrain.launch.config import LaunchConfig, checkpoint_folder
from disttrain.launch.run_folder import RunFolder, RunRecord
from disttrain.launcher import restart_point, sockets_folder, threads
from disttrain.launcher.plan import Place, plan
from disttrain.launcher.restart_policy import Policy


@dataclass(frozen=True, slots=True)
class Run:
    """A prepared run; nothing has been started. `close` frees the folder for others."""

    job: DistTrainJob
    folder: RunFolder
    place: Place
    configs: dict[str, LaunchConfig]
    lock: int
    _pids: dict[str, int] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        """What the manifest says about failures."""
        spec = self.job.spec
        return Policy(failures=spec.failure_policy, durability=spec.parameter_server.durability)

    @property
    def module(self) -> str:
        """Name of the task's module."""
        return self.job.spec.task.entrypoint.partition(":")[0]

    def note_pid(self, name: str, pid: int) -> None:
        """Write the process id of a new life into run.json."""
        self._pids[name] = pid
        self.write_record()

    def write_record(self) -> None:
        """Write run.json."""
        self.folder.write_record(
            RunRecord(
                job_uid=self.place.job_uid,
                task_folder=self.place.task_folder,
                launcher_pid=os.getpid(),
                sockets=self.place.sockets,
                cores=self.place.cores,
                processes=self._pids,
            )
        )

    def close(self) -> None:
        """Remove the sockets and free the folder."""
        sockets_folder.remove(self.place.sockets)
        os.close(self.lock)


def new(job: DistTrainJob, folder: Path, task_folder: Path) -> Run:
    """Prepare a new run in `folder`. Raises OutputFolderInUse when it is not empty."""
    run_folder = RunFolder(folder.resolve())
    run_folder.create()
    atomic_file.replace(run_folder.job, _manifest(job))
    return _prepared(job, run_folder, task_folder.resolve(), uid=uuid.uuid4().hex, resume_from=None)


def resumed(job: DistTrainJob, folder: RunFolder) -> Run:
    """Prepare the next life of the run in `folder`, from its newest checkpoint.

    Raises NotARunFolder, or OutputFolderInUse while it still runs.
    """
    record = folder.read_record()
    checkpoint = restart_point.latest_checkpoint(checkpoint_folder(job, folder.path))
    run = _prepared(job, folder, record.task_folder, uid=record.job_uid, resume_from=checkpoint)
    sockets_folder.remove(record.sockets)
    for told_before in (folder.summary, folder.status):
        told_before.unlink(missing_ok=True)
    return run


def _prepared(
    job: DistTrainJob, folder: RunFolder, task_folder: Path, *, uid: str, resume_from: Path | None
) -> Run:
    folder.prepare()
    lock = folder.lock()
    place = Place(
        run_folder=folder.path,
        task_folder=task_folder,
        job_uid=uid,
        sockets=sockets_folder.create(),
        coordinator_port=_free_port(),
        cores=threads.usable_cores(),
        resume_from=resume_from,
    )
    run = Run(job, folder, place, plan(job, place), lock)
    run.write_record()
    return run


def _manifest(job: DistTrainJob) -> bytes:
    # JSON is YAML, and every default of today is spelled out: a resume means what the run meant.
    return json.dumps(job.model_dump(mode="json", by_alias=True), indent=2).encode() + b"\n"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
