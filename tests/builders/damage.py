"""Checkpoints that are not what they were."""

from pathlib import Path

import psutil

from builders.checkpoints import flip_bit
from builders.launches import wait_until
from builders.runs import RunningJob
from disttrain.checkpoint import names


def flip(checkpoint: Path) -> None:
    """Change one bit of the second shard's part."""
    flip_bit(checkpoint / names.part_file(1), -1)


def flip_newest(checkpoints: Path) -> None:
    """Change one bit of the newest one in the folder."""
    flip(max(checkpoints.glob("[0-9]*")))


def stop_between_checkpoints(job: RunningJob) -> None:
    """Stop the coordinator while no checkpoint is under way: it would commit that one later."""
    coordinator = psutil.Process(job.pid("coordinator"))
    _suspend(coordinator)
    while _is_under_way(job):
        coordinator.resume()
        wait_until(lambda: not _is_under_way(job), "the checkpoint is made")
        _suspend(coordinator)


def _suspend(process: psutil.Process) -> None:
    process.suspend()
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "it is stopped")


def _is_under_way(job: RunningJob) -> bool:
    return any(names.is_leftover(path.name) for path in (job.output / "checkpoints").iterdir())
