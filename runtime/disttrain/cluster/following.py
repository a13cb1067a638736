"""Following a job to its end: what it is like now, and what is new since the last time. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from disttrain.cluster import kubectl_text
from disttrain.cluster.errors import ClusterError
from disttrain.cluster.interface import Object
from disttrain.job.status import JobStatus, Phase
from disttrain.job.status_section import Condition, ConditionStatus, ConditionType

_SILENT = {
    ConditionType.PARAMETERS_AVAILABLE,
    ConditionType.REPLICAS_AVAILABLE,
    ConditionType.COMPLETE,
    ConditionType.FAILED,
}
"""Conditions that come and go while all is well; the end has a line of its own."""

NO_OPERATOR_SECONDS: Final = 10.0
"""After which a job without a status has probably no operator."""

NO_OPERATOR: Final = (
    "no operator has looked at this job: is one running (kubectl get deployments -A "
    "-l app.kubernetes.io/name=disttrain-operator), and does it watch this namespace "
    "(its chart's watchNamespaces)?"
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of a job at one instant."""

    job: Object
    status: JobStatus
    is_overlooked: bool
    """Whether no operator had looked at it, for longer than one would need."""

    @property
    def ended(self) -> Phase | None:
        """Complete or Failed once it has ended; by the conditions, which programs may trust."""
        ends = {ConditionType.COMPLETE: Phase.COMPLETE, ConditionType.FAILED: Phase.FAILED}
        holding = _holding(self.status)
        return next((phase for kind, phase in ends.items() if kind in holding), None)

    @property
    def why(self) -> Condition | None:
        """The condition that says why it is as it is."""
        wanted = (
            ConditionType.FAILED,
            ConditionType.COMPLETE,
            ConditionType.SUSPENDED,
            ConditionType.DEGRADED,
        )
        holding = _holding(self.status)
        return next((holding[kind] for kind in wanted if kind in holding), None)


def _status_of(job: Object) -> JobStatus:
    """Empty before the operator has written one."""
    try:
        return JobStatus.model_validate(job.get("status") or {})
    except ValidationError as error:
        name, place = job["metadata"]["name"], ".".join(map(str, error.errors()[0]["loc"]))
        raise ClusterError(
            f"status.{place} of job {name} is not as this release knows it; install the operator's "
            f"release of disttrain, or see `disttrain get {name} -o yaml`"
        ) from error


def observe(job: Object, now: datetime) -> Observation:
    """What is seen of a job. Raises ClusterError for words that this release does not know."""
    # The API server sets the time when it makes the object.
    is_overlooked = not job.get("status") and (
        kubectl_text.seconds_since(job["metadata"]["creationTimestamp"], now) > NO_OPERATOR_SECONDS
    )
    return Observation(job, _status_of(job), is_overlooked)


def news(before: Observation | None, after: Observation) -> list[str]:
    """A line for each thing that a person who watches should read."""
    old = JobStatus() if before is None else before.status
    lines = [*_conditions(old, after.status), *_failures(old, after.status)]
    if after.is_overlooked and not (before is not None and before.is_overlooked):
        lines.append(NO_OPERATOR)
    return [kubectl_text.printable(line) for line in lines]


def _conditions(old: JobStatus, new: JobStatus) -> list[str]:
    known = {(each.type, each.reason, each.message) for each in _shown(old)}
    return [
        f"{each.type} ({each.reason}): {each.message}"
        for each in _shown(new)
        if (each.type, each.reason, each.message) not in known
    ]


def _shown(status: JobStatus) -> list[Condition]:
    """Conditions that hold and are worth a line."""
    return [each for kind, each in _holding(status).items() if kind not in _SILENT]


def _failures(old: JobStatus, new: JobStatus) -> list[str]:
    known = {(each.pod, each.time) for each in old.failures}
    return [
        f"{each.pod} ended: {each.reason}"
        + ("" if each.exit_code is None else f" (exit code {each.exit_code})")
        for each in new.failures
        if (each.pod, each.time) not in known
    ]


def _holding(status: JobStatus) -> dict[str, Condition]:
    """The conditions that are true, by type."""
    return {each.type: each for each in status.conditions if each.status is ConditionStatus.TRUE}
