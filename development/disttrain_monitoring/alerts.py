"""What somebody should be told of, as data. `rules` makes Prometheus' rules of it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from disttrain_monitoring import labels, query


class Severity(StrEnum):
    """How soon somebody should look."""

    CRITICAL = "critical"
    """Now: nothing is trained, or much would be lost."""
    WARNING = "warning"
    """Within the day."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """A rule; it fires when `value` has met `condition` for `minutes`."""

    name: str
    severity: Severity
    value: str
    """What is compared."""
    condition: str = ""
    """The comparison, and what else must hold; empty: any value fires."""
    minutes: int
    summary: str
    means: str
    """What is wrong and what to do; may name labels as Prometheus' templates do."""

    @property
    def expression(self) -> str:
        """The whole expression of the rule."""
        return f"({self.value}) {self.condition}".strip() if self.condition else self.value


_DEPTH: Final = "disttrain_operator_queue_depth"
"""What every operator serves from its first moment on."""
_RUNNING: Final = f'(max by ({labels.EACH_JOB}) (disttrain_job_phase{{phase="Running"}}) == 1)'
_WHILE_RUNNING: Final = f"and on ({labels.EACH_JOB}) {_RUNNING}"
_NAME: Final = "{{ $labels.namespace }}/{{ $labels.disttrain_job }}"


def _of_each_job(series: str) -> str:
    return query.largest(series, labels.NAMESPACE, labels.JOB)


def _stale(fraction: float) -> str:
    buckets = f'disttrain_gradient_staleness_updates_bucket{{{labels.COMPONENT}="shard"}}'
    return query.quantile(fraction, buckets, labels.NAMESPACE, labels.JOB, window="10m")


JOB_STUCK: Final = Alert(
    name="DistTrainJobStuck",
    severity=Severity.CRITICAL,
    value=_of_each_job("changes(disttrain_job_samples[10m])"),
    condition=f"== 0 {_WHILE_RUNNING}",
    minutes=5,
    summary=f"Job {_NAME} trains nothing.",
    means="The job is Running and no sample was processed for 10 minutes. Look for shards that are "
    "missing and replicas that hang: kubectl get pods, then the log of the coordinator.",
)
SHARD_DOWN: Final = Alert(
    name="DistTrainShardDown",
    severity=Severity.CRITICAL,
    value=_of_each_job("disttrain_shards_wanted")
    + " - "
    + _of_each_job('disttrain_members{role="shard"}'),
    condition=f"> 0 {_WHILE_RUNNING}",
    minutes=3,
    summary=f"{{{{ $value }}}} shards of job {_NAME} are missing.",
    means="Training waits for them. They start again by themselves unless their pods cannot: "
    "kubectl describe pod names the node, image, memory or volume that is the cause.",
)
COORDINATOR_DOWN: Final = Alert(
    name="DistTrainCoordinatorDown",
    severity=Severity.CRITICAL,
    # Other programs have coordinators, too.
    value=f'up{{{labels.COMPONENT}="coordinator", {labels.JOB}!=""}}',
    condition="== 0",
    minutes=5,
    summary=f"The coordinator of job {_NAME} does not answer.",
    means="Replicas train on for as long as they have work, then wait. Look at the pod and at its "
    "last words: kubectl logs --previous.",
)
CHECKPOINT_TOO_OLD: Final = Alert(
    name="DistTrainCheckpointTooOld",
    severity=Severity.WARNING,
    value=f"(time() - {_of_each_job('disttrain_job_checkpoint_timestamp_seconds')}) / "
    f"clamp_min({_of_each_job('disttrain_job_checkpoint_interval_seconds')}, 60)",
    condition=f"> 3 {_WHILE_RUNNING}",
    minutes=5,
    summary=f"Job {_NAME} has no recent checkpoint.",
    means="The last one is {{ $value | humanize }} intervals old: the death of a shard would cost "
    "all training since. The coordinator's log says why checkpoints fail; most often the volume "
    "is full, away or slow.",
)
STALENESS: Final = Alert(
    name="DistTrainStalenessAboveBound",
    severity=Severity.WARNING,
    value=f"{_stale(0.99)} / on ({labels.EACH_JOB}) "
    f"{_of_each_job('disttrain_staleness_bound_updates')}",
    condition="> 1",
    minutes=10,
    summary=f"Gradients of job {_NAME} are staler than its strategy explains.",
    means="Some replica is much slower than the others, so that its gradients are of old "
    "parameters and harm the training. Compare samples per second of the replicas, and give the "
    "slow one another node.",
)
RESTARTS: Final = Alert(
    name="DistTrainRestartsOften",
    severity=Severity.WARNING,
    value=query.total(
        "increase(disttrain_restarts_total[30m])", labels.NAMESPACE, labels.JOB, "role"
    ),
    condition="> 5",
    minutes=0,
    summary=f"Processes of job {_NAME} die again and again.",
    means="{{ $value | humanize }} restarts of role {{ $labels.role }} in 30 minutes. "
    "status.failures of the job has the exit codes and last words; for OOMKilled raise the memory "
    "limit of that role's template.",
)
OPERATOR_DOWN: Final = Alert(
    name="DistTrainOperatorDown",
    severity=Severity.CRITICAL,
    value=f"({query.largest(f'max_over_time({_DEPTH}[1h])', labels.NAMESPACE)} unless "
    f"{query.largest(_DEPTH, labels.NAMESPACE)}) or absent(max_over_time({_DEPTH}[1h]))",
    minutes=5,
    summary="An operator of DistTrain does not answer.",
    means="Running jobs train on. New jobs do not start, changes and deadlines wait, and nobody "
    "replaces pods on lost nodes. Look at the operator's Deployment and at its log.",
)
RECONCILE_ERRORS: Final = Alert(
    name="DistTrainReconcileErrors",
    severity=Severity.WARNING,
    value=query.total(
        "increase(disttrain_operator_reconcile_errors_total[15m])", labels.NAMESPACE, "kind"
    ),
    condition="> 3",
    minutes=10,
    summary="The operator cannot do its work for some jobs.",
    means="{{ $value | humanize }} errors of kind {{ $labels.kind }} in 15 minutes. Jobs with the "
    "condition ReconcileError carry the API server's words; the operator's log names them.",
)

ALERTS: Final = (
    JOB_STUCK,
    SHARD_DOWN,
    COORDINATOR_DOWN,
    CHECKPOINT_TOO_OLD,
    STALENESS,
    RESTARTS,
    OPERATOR_DOWN,
    RECONCILE_ERRORS,
)
