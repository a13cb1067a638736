"""What is kept of an object that was seen."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from disttrain.job.names import Role
from disttrain_operator import json_text, workload
from disttrain_operator.kinds import Kind
from disttrain_operator.workload import Workload


class JobKey(NamedTuple):
    """Where a job is. Another job may come to the same place; its uid tells them apart."""

    namespace: str
    name: str

    @property
    def common(self) -> "JobKey":
        return JobKey(self.namespace, "")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class EndPhase(StrEnum):
    """How a job can end, and the condition that tells it."""

    COMPLETE = "Complete"
    """A stop rule was met."""
    FAILED = "Failed"
    """It cannot go on."""


class OperatorReason(StrEnum):
    """Why the operator ends a job; every other reason is its coordinator's."""

    DEADLINE_EXCEEDED = "DeadlineExceeded"
    PENDING_DEADLINE_EXCEEDED = "PendingDeadlineExceeded"
    FAILED_BY_RULE = "FailedByRule"
    TOO_MANY_RESTARTS = "TooManyRestarts"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a job ended."""

    phase: EndPhase
    reason: str
    message: str
    time: datetime

    @classmethod
    def failed(cls, reason: str, message: str, time: datetime) -> "Outcome":
        return cls(phase=EndPhase.FAILED, reason=reason, message=message, time=time)

    @property
    def by_operator(self) -> bool:
        """Whether the operator decided, so that the coordinator may still be running."""
        return self.reason in set(OperatorReason)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """A DistTrainJob."""

    kind: ClassVar[Kind] = Kind.DistTrainJob
    key: JobKey
    uid: str
    version: int
    """The resourceVersion as a number; 0 if it is none."""
    generation: int
    created: datetime
    deleting: bool
    spec: str
    """The spec as JSON: a tenth of the memory of its values, and one text for equal ones."""
    outcome: Outcome | None
    restarts: str
    """The annotation with what was counted of restarts."""
    authority: str
    """The annotation with the authority of its Secret, where that was made again; else empty."""
    written: str
    """The fields of the status that the operator writes, as JSON too."""
    phase: str
    """The status' phase, as is the next: what is asked for more often than the rest of it."""
    strategy: str
    training: bool
    """Whether the coordinator has reported a sample."""

    @property
    def job(self) -> JobKey:
        return self.key

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def owner_uid(self) -> str:
        return self.uid

    @property
    def status(self) -> dict[str, Any]:
        """The fields of the status that the operator writes, read anew at each look at them."""
        found: dict[str, Any] = json_text.read(self.written)
        return found

    def asks_the_same(self, other: "JobRecord") -> bool:
        """Whether nothing differs but what the operator tells of it."""
        told = {name: getattr(other, name) for name in ("version", "written", "phase", "strategy")}
        return replace(self, **told) == other


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildRecord:
    """An object that was made for a job."""

    kind: Kind
    name: str
    uid: str
    version: int
    job: JobKey
    owner_uid: str
    """The job's, from the owner reference; of what has no owner, from its label."""
    owned_by: str
    """Kind and name of the owner, for messages; empty for none."""
    deleting: bool
    objects: str = ""
    """Of a workload: the text with all of the job's objects, as they were made first."""
    templates: str = ""
    """Of a workload: the digest of the user's pod templates that it was made from."""
    authority: str = ""
    """Of a workload: the fingerprint of the authority of the job's Secret; empty: not known."""
    outcome: Outcome | None = None
    """Of a workload that was stopped for good: how its job ended."""
    wanted: int = 0
    """Of a workload: the pods that it shall have."""
    ready: int = 0
    """Of a workload: those that are ready."""
    remaining: int = 0
    """Of a workload: those that are there, those that are ending among them."""
    started: datetime | None = None
    """Of the coordinator's Job: when it, or the one that it was made anew from, started or was
    resumed."""
    failed: int = 0
    """Of the coordinator's Job: pods that failed, those that were told to end among them."""
    ended: EndPhase | None = None
    """Of the coordinator's Job: how it ended."""
    trouble: str = ""
    """What its controller says hinders it."""

    @property
    def workload(self) -> Workload | None:
        """Whose pods it makes; None for what makes none."""
        return workload.of(self.kind, self.job.name, self.name)

    @property
    def role(self) -> Role | None:
        """Of the pods that it makes."""
        return None if self.workload is None else self.workload.role

    @property
    def is_of_one_replica(self) -> bool:
        """Whether it keeps the processes of a replica that has several."""
        return self.workload is not None and self.workload.group is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """The last end of a pod's container."""

    exit_code: int
    reason: str
    message: str
    time: datetime
    reasons: frozenset[str] = frozenset()
    """All that is said of why: by the container, by the pod, by who took the pod away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodRecord:
    """A pod of a job."""

    kind: ClassVar[Kind] = Kind.Pod
    name: str
    uid: str
    version: int
    job: JobKey
    owner_uid: str
    """The job's, from its label."""
    role: Role
    phase: str
    ready: bool
    gone_at: datetime | None
    """When it should be gone: its deletion time, grace included. None: it is not being deleted."""
    restarts: int
    death: Death | None
    waiting: str
    """Why its container does not run, such as ImagePullBackOff; empty if it does."""
    detail: str
    """What the kubelet or the scheduler says about it."""
    unschedulable: bool
    outcome: Outcome | None
    """Of a coordinator that ended: what it decided."""
    controller: str = ""
    """Uid of the workload that controls it, by its owner reference; empty: none."""
    node: str = ""
    """Where it runs; empty: nowhere yet."""
    created: datetime | None = None
    disrupted: bool = False
    """Whether the cluster took the pod away: a drain, a preemption, a lost node."""
    tainted: bool = False
    """Whether it was taken away because of its node's taint, as a lost node has one."""
    is_of_several: bool = False
    """Whether it is one of several processes of a replica, which end with each other."""
    restarting: bool = False
    """Whether its container has died and was not started again until now."""
    earlier: tuple[Death, ...] = ()
    """Deaths before the last one, oldest first. The API tells of the last two ends at most."""

    @property
    def deaths(self) -> tuple[Death, ...]:
        """All its deaths that are known, oldest first."""
        return self.earlier if self.death is None else (*self.earlier, self.death)

    @property
    def over(self) -> bool:
        """Whether no process of it runs or will."""
        return self.phase in {"Succeeded", "Failed"}
