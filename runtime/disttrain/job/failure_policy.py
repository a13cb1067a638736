"""How often failed processes are started again, and what ends the job."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from disttrain.job.names import Role
from disttrain.job.section import ON_A_CLUSTER, NotNegative, Positive, Section, WholeNumber

DISRUPTION = "DisruptionTarget"
"""The reason of a death by which the cluster took the pod away: a drain, a preemption, a lost node,
a node without memory or disk."""

ExitCode = Annotated[int, Field(ge=1, le=255)]
Reason = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]


_FEWEST = 10
_FOR_EACH = 3
"""Restarts for each member of a role: on the average all of them may fail so often."""


class MaxRestarts(Section):
    """Restarts of a role in the whole job; the next failure after them fails the job."""

    replica: WholeNumber | None = None
    """Restarts of all replicas together. null: three for each replica, and at least 10; a job that
    is made smaller keeps what it had."""

    shard: WholeNumber | None = None
    """Restarts of all shards together. null: three for each shard, and at least 10."""

    coordinator: WholeNumber = _FEWEST
    """Restarts of the coordinator."""

    def budget(self, role: Role, members: int) -> int:
        given = {
            Role.REPLICA: self.replica,
            Role.SHARD: self.shard,
            Role.COORDINATOR: self.coordinator,
        }[role]
        return max(_FEWEST, _FOR_EACH * members) if given is None else given


class RestartBackoff(Section):
    """The shortest time from a failure to the next incarnation of a shard or replica.

    It doubles with each failure in a row of the same one.
    """

    initial_seconds: NotNegative = 0.5
    """Seconds after the first failure."""

    max_seconds: Positive = 30.0
    """The longest wait, in seconds; at least initialSeconds. Whoever lives longer than this begins
    again with initialSeconds."""

    def seconds(self, failures_before: int) -> float:
        """From a failure that so many in a row have preceded to the next incarnation."""
        # 2.0**64 is far beyond any wait, and a larger exponent would overflow.
        return min(self.initial_seconds * 2.0 ** min(failures_before, 64), self.max_seconds)

    def forgets_after(self, lived_seconds: float) -> bool:
        """Whether an incarnation lived so long that its end is the first in a row."""
        return lived_seconds > self.max_seconds

    def problem(self) -> str | None:
        first, longest = self.initial_seconds, self.max_seconds
        if first <= longest:
            return None
        return f"maxSeconds must be at least initialSeconds ({first}), got {longest}"


class FailureAction(StrEnum):
    """What follows a failure."""

    RESTART_POD = "RestartPod"
    """The process is started again, and its role's budget is charged."""
    RESTART_POD_IGNORING_BUDGET = "RestartPodIgnoringBudget"
    """The process is started again, as often as it takes."""
    FAIL_JOB = "FailJob"
    """The job fails at once."""
    RESTART_JOB_FROM_CHECKPOINT = "RestartJobFromCheckpoint"
    """All processes of the job are started again, and the role's budget is charged."""


class FailureRule(Section):
    """What follows failures that match all of its lists; an empty list matches every failure."""

    roles: Annotated[
        tuple[Annotated[Role, Field(strict=False)], ...], Field(strict=False, max_length=3)
    ] = ()
    """Roles whose failures it is about."""

    exit_codes: Annotated[tuple[ExitCode, ...], Field(strict=False, max_length=64)] = ()
    """Exit codes of the process; 128 and the signal's number for one that was killed."""

    reasons: Annotated[tuple[Reason, ...], Field(strict=False, max_length=16)] = ()
    """Reasons, of which the failure must have one: of the container (OOMKilled, Error), of its pod
    (Evicted), or DisruptionTarget where the cluster took the pod away."""

    action: Annotated[FailureAction, Field(strict=False)]
    """What follows."""


class FailurePolicy(Section):
    """What is survived, and how often."""

    max_restarts: MaxRestarts = MaxRestarts()
    """Restart budgets per role."""

    restart_backoff: RestartBackoff = RestartBackoff()
    """How long failed shards and replicas stay away, on one machine and on Kubernetes. There their
    kubelets wait, too, and the longer wait counts: a kubelet starts a pod's process again at once,
    then after 10 seconds, and twice as long each time up to five minutes."""

    rules: Annotated[
        tuple[FailureRule, ...],
        Field(strict=False, max_length=20, json_schema_extra=ON_A_CLUSTER),
    ] = ()
    """Exceptions from restarting within the budget; the first rule that matches a failure counts.
    Before them, unless one of them names it, comes a rule that restarts processes with the reason
    DisruptionTarget without charging the budget. Of a process that died several times while the
    operator was away only the last death is known, and each counts as that one does."""

    max_non_finite_gradients: WholeNumber = 10
    """Gradients with NaN or infinity that are refused before the job fails as Diverged. Local steps
    that lead out of the range of numbers count once for each push."""
