"""Which processes live and do nothing any more, so that they are to be killed. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disttrain.job import names
from disttrain.job.names import Role
from disttrain.job.run_status import RunStatus
from disttrain.launcher.supervision import Process

START_SECONDS = 600.0
"""For the coordinator's first word of an incarnation: it may have to wait for what it goes on
from."""
IDLE_SECONDS = {Role.SHARD: 600.0, Role.REPLICA: 3600.0}
"""Without any processor time before a member has joined. Whoever reads, imports or asks to join
uses some; a task may wait for what it has started, or for a replica that prepares the data of all.
"""
ANSWER_SECONDS = 30.0
"""Without any processor time while a fork server owes an answer."""
IMPORT_SECONDS = 600.0
"""The same while it imports; a task's module may wait for what it has started."""
_MOST_SECONDS_OF_A_LOOK = 1.0
"""Looks that are farther apart: the launcher itself was stopped, and heard nothing meanwhile."""


@dataclass(frozen=True, slots=True)
class Hang:
    """An incarnation that is to end, and why."""

    name: str
    pid: int
    reason: str


@dataclass(frozen=True, slots=True)
class Owing:
    """A process from which something is due, and for how long it may do nothing instead."""

    name: str
    pid: int
    what: str
    patience_seconds: float


@dataclass(slots=True)
class _Idle:
    """How long a process has used no processor time."""

    ticks: int
    seconds: float = 0.0


class Hangs:
    """Looks at the processes again and again; tells of each incarnation once.

    A member hangs when the coordinator has declared it dead and its process is there: it was
    silent, and nothing that it says counts any more; and before it has joined, when it does nothing
    for long. So does a fork server that owes an answer. The coordinator hangs when it is silent.
    """

    def __init__(self, patience_seconds: float, used_ticks: Callable[[int], int]) -> None:
        """`used_ticks`: a process's processor time, in any unit."""
        self._patience_seconds = patience_seconds
        """For a coordinator that has said something in its incarnation."""
        self._used_ticks = used_ticks
        self._joined: frozenset[tuple[str, int]] = frozenset()
        self._idle: dict[int, _Idle] = {}
        """By process: those that owe something."""
        self._looked: float | None = None
        self._coordinator: int | None = None
        """The process whose silence is counted; None: it does not run."""
        self._has_spoken = False
        self._silent_seconds = 0.0
        self._told: set[int] = set()
        """Processes, as long as they live: the system gives their numbers to others later."""

    def look(
        self,
        running: Sequence[Process],
        heard: RunStatus | None,
        now: float,
        servers: Sequence[Owing] = (),
    ) -> list[Hang]:
        """Those found now. `heard`: what the coordinator said, if anything.

        `now` is in seconds of one clock that never goes back. `servers`: fork servers that owe an
        answer.
        """
        since = 0.0 if self._looked is None else min(now - self._looked, _MOST_SECONDS_OF_A_LOOK)
        self._looked = now
        self._count(running, since, has_spoken=heard is not None)
        if heard is not None:
            self._joined = heard.joined
        members = () if heard is None else heard.members
        living = {(process.name, process.pid) for process in running}
        found = [
            Hang(member.name, member.pid, member.reason)
            for member in members
            if member.is_dead and (member.name, member.pid) in living
        ]
        found += self._idle_ones([*self._not_joined(running), *servers], since)
        patience = self._patience_seconds if self._has_spoken else START_SECONDS
        if self._coordinator is not None and self._silent_seconds >= patience:
            why = f"silent for {self._silent_seconds:.1f} s"
            found.append(Hang(names.COORDINATOR, self._coordinator, why))
        there = {process.pid for process in running} | {server.pid for server in servers}
        self._told &= there
        new = [hang for hang in found if hang.pid not in self._told]
        self._told.update(hang.pid for hang in new)
        return new

    def _not_joined(self, running: Sequence[Process]) -> list[Owing]:
        if not self._has_spoken:
            # Nobody can join, or who has is not known.
            return []
        return [
            Owing(process.name, process.pid, "has not joined", IDLE_SECONDS[role])
            for process in running
            if (role := names.parse(process.name).role) in IDLE_SECONDS
            and (process.name, process.pid) not in self._joined
        ]

    def _idle_ones(self, owing: Sequence[Owing], since: float) -> list[Hang]:
        found, idle = [], {}
        for each in owing:
            ticks, before = self._used_ticks(each.pid), self._idle.get(each.pid)
            now = idle[each.pid] = _Idle(ticks)
            if before is not None and before.ticks == ticks:
                now.seconds = before.seconds + since
            if now.seconds >= each.patience_seconds:
                why = f"{each.what}, and did nothing for {now.seconds:.1f} s"
                found.append(Hang(each.name, each.pid, why))
        self._idle = idle
        return found

    def _count(self, running: Sequence[Process], since: float, *, has_spoken: bool) -> None:
        coordinator = next((each.pid for each in running if each.name == names.COORDINATOR), None)
        if coordinator is None or coordinator != self._coordinator:
            self._coordinator = coordinator
            self._has_spoken = False
            self._silent_seconds = 0.0
        elif has_spoken:
            self._has_spoken = True
            self._silent_seconds = 0.0
        else:
            self._silent_seconds += since
