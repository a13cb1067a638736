"""Whether a job's model can be divided, found before any of the job's processes starts."""

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from disttrain.cli import table
from disttrain.job.spec import DistTrainJob
from disttrain.launch import linux
from disttrain.launch.errors import NotDivisible


def require(job: DistTrainJob, task_folder: Path) -> None:
    """Raises NotDivisible, with the layer's name. What else is wrong the replicas say.

    The task runs in a process of its own: the launcher keeps neither torch nor what the task holds,
    and lives on whatever the task does.
    """
    reading, writing = multiprocessing.Pipe(duplex=False)
    look = multiprocessing.get_context("fork").Process(
        target=_look, args=(job, task_folder, writing, os.getpid())
    )
    look.start()
    writing.close()
    try:
        refusal = _heard(reading, job.spec.replicas.call_timeout_seconds)
    finally:
        look.kill()
        look.join()
        reading.close()
    if refusal:
        raise NotDivisible(refusal)


def _heard(reading: Connection, seconds: float | None) -> str:
    """Nothing also of a process that ends without a word, or hangs: replicas are watched."""
    try:
        return reading.recv_bytes().decode() if reading.poll(seconds) else ""
    except EOFError:
        return ""


def _look(job: DistTrainJob, task_folder: Path, writing: Connection, parent: int) -> None:
    linux.end_with_parent(parent, signal.SIGKILL)
    # What the task prints is in the logs of the replicas.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    refusal: str = table.later("why a model cannot be divided")(job, task_folder)
    writing.send_bytes(refusal.encode())
