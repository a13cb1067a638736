"""The states of a job's processes, and what follows from their starts and ends. Pure.

The processes of a group live and die together: when one ends, the others are ended, and all are
started again together, as one restart.
"""

import math
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from disttrain.job import names
from disttrain.job.spec import Spec
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher.restart_policy import Exit, GiveUpReason, History, Restart, decide

GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL, for a process whose group has ended: it has nothing to save."""
POSTPONED_SECONDS = 10.0
"""Between two attempts to start a process. A disk that is full stays so for a while."""


class State(StrEnum):
    """What a process is doing, as far as its parent knows."""

    DUE = "due"
    """To be started now."""
    STARTING = "starting"
    """Asked for."""
    RUNNING = "running"
    STOPPING = "stopping"
    """Another one of its group has ended: it is told to end."""
    WAITING = "waiting"
    """Ended; to be started again when its time comes."""
    ENDED = "ended"
    """Not started again."""


class Phase(StrEnum):
    """How far the job is, as far as the launcher knows."""

    RUNNING = "running"
    STOPPING = "stopping"
    """Interrupted: the coordinator was asked to write a checkpoint and end."""
    CLOSING = "closing"
    """The job has ended or is to fail, and the coordinator still says so to its members: nothing
    else is started any more."""
    ENDING = "ending"
    """The coordinator has ended, or the job is given up: nothing is started any more."""


@dataclass(slots=True)
class Process:
    """One process over all of its incarnations."""

    name: str
    state: State = State.DUE
    pid: int = 0
    due: float = 0.0
    """When it is to be started, while WAITING."""
    since: float = 0.0
    """When it was asked for."""
    restarts: int = 0
    last_exit: Exit | None = None
    is_consequence: bool = False
    """The last exit: another one of its group had ended before."""
    kill_at: float | None = None
    """When it is killed, while STOPPING; None: it was not told to end yet."""
    is_postponed: bool = False
    """It could not be started, and waits for the next attempt."""

    @property
    def group(self) -> str:
        return names.parse(self.name).group


Verdict = Restart | GiveUpReason | None
"""None: the process ended as it should."""


class Supervision:
    """The table of processes. Times are seconds of one clock that never goes back."""

    def __init__(self, process_names: Iterable[str], spec: Spec) -> None:
        self.processes = {name: Process(name) for name in process_names}
        self.phase = Phase.RUNNING
        self._spec = spec
        self._history = History()

    def due(self, now: float, can_start: Callable[[str], bool]) -> list[Process]:
        """The processes to start now; each is told once. Those that cannot start yet stay due."""
        due = [each for each in self._startable() if _is_due(each, now)]
        found = [process for process in due if can_start(process.name)]
        for process in found:
            # Counted here: what waits when the job ends is not started again.
            process.restarts += process.last_exit is not None
            process.state = State.STARTING
            process.kill_at = None
            process.since = now
        return found

    def is_any_due(self, now: float) -> bool:
        return any(_is_due(process, now) for process in self._startable())

    def next_due(self) -> float | None:
        waiting = (each for each in self._startable() if each.state is State.WAITING)
        return min((each.due for each in waiting), default=None)

    def postponed(self, name: str, now: float) -> bool:
        """A process that was due could not be started; whether that is new.

        It waits for the next attempt, which is no restart of its own.
        """
        process = self.processes[name]
        is_new, process.is_postponed = not process.is_postponed, True
        process.restarts -= process.last_exit is not None
        process.state = State.WAITING
        process.due = now + POSTPONED_SECONDS
        return is_new

    def started(self, name: str, pid: int) -> None:
        process = self.processes[name]
        if process.state is not State.STOPPING:
            process.state = State.RUNNING
        process.is_postponed = False
        process.pid = pid

    def ended(self, name: str, exit_: Exit, now: float) -> Verdict:
        """A process has ended. A verdict other than Restart means that it stays so."""
        process = self.processes[name]
        process.last_exit = exit_
        process.is_consequence = process.state is State.STOPPING
        if process.is_consequence and exit_.code != ExitCode.FINAL_ERROR:
            process.state = State.WAITING if self._starts_again else State.ENDED
            return None
        process.state = State.ENDED
        verdict = self._verdict(process, exit_, now)
        if isinstance(verdict, Restart):
            process.state = State.WAITING
            process.due = now + verdict.delay_seconds
            self._end_group(process)
        elif name == names.COORDINATOR:
            self._end()
        elif isinstance(verdict, GiveUpReason):
            self.closes()
        return verdict

    def to_stop(self, now: float) -> Iterator[tuple[int, signal.Signals]]:
        """Processes that are to end with their group, and the signal for each; each told once."""
        for process in self.processes.values():
            if process.state is not State.STOPPING or not process.pid:
                continue
            if process.kill_at is None:
                process.kill_at = now + GRACE_SECONDS
                yield process.pid, signal.SIGTERM
            elif now >= process.kill_at:
                process.kill_at = math.inf
                # One that was stopped heeds nothing else.
                yield process.pid, signal.SIGKILL

    def interrupted(self) -> None:
        """The user wants an end: the coordinator has been asked for one."""
        if self.phase is Phase.RUNNING:
            self.phase = Phase.STOPPING

    def closes(self) -> None:
        """The job has ended or is given up; may be told again."""
        if self.phase is Phase.ENDING:
            return
        self.phase = Phase.CLOSING
        for process in self.processes.values():
            if process.name != names.COORDINATOR:
                _cancel(process)

    def is_ending(self, group: str) -> bool:
        """Whether a process of it is still to end, since another one has ended."""
        return any(
            each.state is State.STOPPING and each.group == group for each in self.processes.values()
        )

    @property
    def running(self) -> list[Process]:
        """Those told to end with their group included."""
        there = {State.RUNNING, State.STOPPING}
        return [each for each in self.processes.values() if each.state in there and each.pid]

    @property
    def _starts_again(self) -> bool:
        return self.phase in {Phase.RUNNING, Phase.STOPPING}

    def _startable(self) -> list[Process]:
        """All but those that wait for the last one of their group to end."""
        ending = {each.group for each in self.processes.values() if each.state is State.STOPPING}
        return [each for each in self.processes.values() if each.group not in ending]

    def _others(self, process: Process) -> list[Process]:
        group = process.group
        found = (each for each in self.processes.values() if each.group == group)
        return [each for each in found if each is not process]

    def _end_group(self, process: Process) -> None:
        """The others have to end, and are due with this one."""
        for other in self._others(process):
            other.due = process.due
            if other.state is State.STARTING:
                # It is told when it is there.
                other.pid = 0
            if other.state in {State.STARTING, State.RUNNING}:
                other.state = State.STOPPING
            elif other.state is State.DUE:
                other.state = State.WAITING

    def _verdict(self, process: Process, exit_: Exit, now: float) -> Verdict:
        if self.phase is Phase.ENDING or _decided(process, exit_):
            return None
        if self.phase is Phase.CLOSING and process.name != names.COORDINATOR:
            return None
        lived = now - process.since
        return decide(self._spec, self._history, process.group, exit_, lived_seconds=lived)

    def _end(self) -> None:
        self.phase = Phase.ENDING
        for process in self.processes.values():
            _cancel(process)


def _cancel(process: Process) -> None:
    if process.state in {State.WAITING, State.DUE}:
        process.state = State.ENDED


def _decided(process: Process, exit_: Exit) -> bool:
    return process.name == names.COORDINATOR and exit_.code in {
        ExitCode.COMPLETE,
        ExitCode.FAILED,
        ExitCode.INTERRUPTED,
    }


def _is_due(process: Process, now: float) -> bool:
    return process.state is State.DUE or (process.state is State.WAITING and process.due <= now)
