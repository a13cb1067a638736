"""Which processes live and do nothing any more, so that they are to be killed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from disttrain.job import names
from disttrain.launcher.supervision import Process, State

START_SECONDS = 600.0
"""For the coordinator's first word of a life: it may have to wait for what it goes on from."""
_MOST_SECONDS_OF_A_LOOK = 1.0
"""Looks that are farther apart: the launcher itself was stopped, and heard nothing meanwhile."""


@dataclass(frozen=True, slots=True)
class Hang:
    """A life that is to end, and why."""

    name: str
    pid: int
    reason: str


class Hangs:
    """Looks at the processes again and again; tells of each life once.

    A member hangs when the coordinator has declared it dead and its process is there: it was
    silent, and nothing that it says counts any more. The coordinator hangs when it is silent.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        """For a coordinator that has said something in its life."""
        self._looked: float | None = None
        self._coordinator = 0
        """The process whose silence is counted."""
        self._has_spoken = False
        self._silent_seconds = 0.0
        self._told: set[int] = set()
        """Processes, as long as they live: the system gives their numbers to others later."""

    def look(
        self, processes: Mapping[str, Process], dead: tuple[Hang, ...] | None, now: float
    ) -> list[Hang]:
        """Those found now. `dead`: what the coordinator said of members; None if it said nothing.

        `now` is in seconds of one clock that never goes back.
        """
        self._count(processes[names.COORDINATOR], now, has_spoken=dead is not None)
        found = [hang for hang in dead or () if _lives(processes.get(hang.name), hang.pid)]
        patience = self._patience_seconds if self._has_spoken else START_SECONDS
        if self._silent_seconds >= patience:
            why = f"silent for {self._silent_seconds:.1f} s"
            found.append(Hang(names.COORDINATOR, self._coordinator, why))
        self._told.intersection_update(_living(processes))
        new = [hang for hang in found if hang.pid not in self._told]
        self._told.update(hang.pid for hang in new)
        return new

    def _count(self, coordinator: Process, now: float, *, has_spoken: bool) -> None:
        since = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        if coordinator.state is not State.RUNNING or coordinator.pid != self._coordinator:
            self._coordinator = coordinator.pid
            self._has_spoken = False
            self._silent_seconds = 0.0
        elif has_spoken:
            self._has_spoken = True
            self._silent_seconds = 0.0
        else:
            self._silent_seconds += min(since, _MOST_SECONDS_OF_A_LOOK)


def _living(processes: Mapping[str, Process]) -> set[int]:
    return {each.pid for each in processes.values() if each.state is State.RUNNING}


def _lives(process: Process | None, pid: int) -> bool:
    return process is not None and process.state is State.RUNNING and process.pid == pid
