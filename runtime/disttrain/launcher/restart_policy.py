"""When a process that ended is started again, and when the job is given up instead. Pure."""

import signal
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from disttrain.job import names
from disttrain.job.failure_policy import RestartBackoff
from disttrain.job.names import Role
from disttrain.job.roles import Durability
from disttrain.job.spec import Spec
from disttrain.launch.exit_code import ExitCode

EARLY_END_SECONDS = 5.0
"""Wait before a member that ended on purpose is started again. At the job's end members end
a moment before the coordinator; a member that left earlier is missed."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: its exit code, or minus the signal that killed it."""

    code: int

    @property
    def is_orderly(self) -> bool:
        """Whether the process ended on purpose: told to by the coordinator, or by SIGTERM."""
        return self.code in {ExitCode.COMPLETE, ExitCode.INTERRUPTED, -signal.SIGTERM}

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exit code {self.code}"
        known = {number.value: number.name for number in signal.Signals}
        return f"killed by {known.get(-self.code, f'signal {-self.code}')}"


class GiveUpReason(StrEnum):
    """Why a job cannot go on."""

    FINAL_ERROR = "FinalError"
    """A restart cannot heal the error."""
    SUPERSEDED = "Superseded"
    """Another coordinator has taken the job over."""
    TOO_MANY_RESTARTS = "TooManyRestarts"
    SHARD_LOST = "ShardLost"
    """A shard ended and the job's durability is `none`."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the group again after so many seconds; it is the role's `number`-th restart."""

    delay_seconds: float
    number: int


@dataclass(slots=True)
class History:
    """Restarts so far. Only `decide` changes it."""

    restarts: Counter[Role] = field(default_factory=Counter)
    failures_in_a_row: Counter[str] = field(default_factory=Counter)


def decide(
    spec: Spec, history: History, name: str, exit_: Exit, *, lived_seconds: float
) -> Restart | GiveUpReason:
    """What follows the end of the group `name`: a restart, counted in `history`, or no more.

    It has ended with the first of its processes, and is one failure. A group that lived longer than
    the longest wait begins again with the shortest one.
    """
    role = names.parse(name).role
    if reason := _reason_to_give_up(spec, history, role, exit_):
        return reason
    backoff = spec.failure_policy.restart_backoff
    if backoff.forgets_after(lived_seconds):
        history.failures_in_a_row[name] = 0
    delay = _delay(backoff, history.failures_in_a_row[name], exit_)
    history.failures_in_a_row[name] += 1
    history.restarts[role] += 1
    return Restart(delay, history.restarts[role])


def _reason_to_give_up(
    spec: Spec, history: History, role: Role, exit_: Exit
) -> GiveUpReason | None:
    if exit_.code == ExitCode.FINAL_ERROR:
        return GiveUpReason.FINAL_ERROR
    if exit_.code == ExitCode.SUPERSEDED:
        return GiveUpReason.SUPERSEDED
    told_to_end = exit_.code == ExitCode.COMPLETE
    durability = spec.parameter_server.durability
    if role is Role.SHARD and durability is Durability.NONE and not told_to_end:
        return GiveUpReason.SHARD_LOST
    members = {Role.REPLICA: spec.replicas.count, Role.SHARD: spec.shards}.get(role, 1)
    budget = spec.failure_policy.max_restarts.budget(role, members)
    if history.restarts[role] >= budget:
        return GiveUpReason.TOO_MANY_RESTARTS
    return None


def _delay(backoff: RestartBackoff, failures_before: int, exit_: Exit) -> float:
    delay = backoff.seconds(failures_before)
    return max(delay, EARLY_END_SECONDS) if exit_.is_orderly else delay
