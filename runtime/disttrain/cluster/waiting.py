"""Waiting for what a cluster does."""

import time
from collections.abc import Callable
from typing import Final

from disttrain.cluster.errors import NotInTime, Unreachable
from disttrain.cluster.jobs import Jobs

POLL_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 600.0
"""For pods to end: each has two minutes to save its work, and nodes may be slow."""


def until_gone(jobs: Jobs, name: str, uid: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Return when neither the job nor a pod of it is there. Raises NotInTime."""
    job = {"metadata": {"name": name, "uid": uid}}

    def is_gone() -> bool:
        return not jobs.is_there(name, uid) and not jobs.pods(job)

    until(is_gone, f"job {name} and its pods to be gone", seconds)


def until(holds: Callable[[], bool], what: str, seconds: float) -> None:
    """Return when it holds; an API server that is away for a while is borne. Raises NotInTime."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except Unreachable:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            message = f"waited {seconds:g} s for {what}"
            raise NotInTime(message)
        time.sleep(POLL_SECONDS)
