"""Every metric that a process of a job serves: names, units, labels and buckets in one place.

A process makes one registry, registers the group of its role in it and hands the registry to the
exporter. Job names are no labels: the series are scraped from the job's own processes.
"""

from dataclasses import dataclass
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""From a push of a small model in shared memory to a fetch that waits for a shard's restart."""

STALENESS_BUCKETS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024)
"""Updates; exact where few replicas live, coarser above."""


def new_registry() -> CollectorRegistry:
    """Return an empty registry; a process has one."""
    return CollectorRegistry()


@dataclass(frozen=True, kw_only=True, slots=True)
class ExporterMetrics:
    """What the exporter of every process counts of itself, from any thread."""

    connections_cut: Counter
    """Label `reason`: limit, too many at once; error, the peer went away or was not understood."""

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Make the group in `registry`, once per registry."""
        new = _Maker(registry)
        return cls(
            connections_cut=new.counter(
                "metrics_connections_cut",
                "Connections to the metrics port that ended without an answer.",
                "reason",
            )
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaMetrics:
    """What a replica counts. The methods of all fields may be called from any thread."""

    samples: Counter
    steps: Counter
    loss: Gauge
    step_seconds: Counter
    """Label `doing`: computing, data, push or fetch; the last three are time spent waiting."""
    push_seconds: Histogram
    push_bytes: Counter
    fetch_seconds: Histogram
    fetch_bytes: Counter
    staleness: Histogram
    non_finite_gradients: Counter
    ledger_records_missing: Counter

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Make the group in `registry`, once per registry."""
        new = _Maker(registry)
        return cls(
            samples=new.counter("samples", "Training samples processed."),
            steps=new.counter("steps", "Training steps computed."),
            loss=new.gauge("loss", "Mean training loss since the last report."),
            step_seconds=new.counter(
                "step_seconds", "Time of the training thread by what it did.", "doing"
            ),
            push_seconds=new.seconds("push_seconds", "From a push's start to its last reply."),
            push_bytes=new.counter("push_bytes", "Payload bytes pushed."),
            fetch_seconds=new.seconds("fetch_seconds", "Time of a fetch from all shards."),
            fetch_bytes=new.counter("fetch_bytes", "Payload bytes fetched."),
            staleness=new.staleness(),
            non_finite_gradients=new.counter(
                "non_finite_gradients", "Gradients not pushed because they were not finite."
            ),
            ledger_records_missing=new.ledger_records_missing(),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardMetrics:
    """What a shard counts."""

    version: Gauge
    incarnation: Gauge
    updates_applied: Counter
    updates_refused: Counter
    """Label `reason`: the lower-case name of the refusal."""
    updates_at_risk: Gauge
    staleness: Histogram
    push_bytes: Counter
    fetch_bytes: Counter
    apply_seconds: Counter
    checkpoint_seconds: Histogram
    checkpoint_blocking_seconds: Histogram
    checkpoint_failures: Counter
    ledger_records_missing: Counter
    messages_dropped: Counter
    """Label `reason`: why the transport dropped what arrived."""
    staged_bytes: Gauge
    orders: Counter
    order_seconds: Counter

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Make the group in `registry`, once per registry."""
        new = _Maker(registry)
        return cls(
            staged_bytes=new.gauge(
                "staged_bytes", "Gradients of a batch method that no order has committed yet."
            ),
            orders=new.counter("orders", "Orders of a batch method carried out on vectors."),
            order_seconds=new.counter("order_seconds", "Time spent on orders of a batch method."),
            version=new.gauge("shard_version", "Updates that this shard has applied."),
            incarnation=new.gauge("shard_incarnation", "Life number of this shard."),
            updates_applied=new.counter("updates_applied", "Updates applied completely."),
            updates_refused=new.counter("updates_refused", "Updates refused.", "reason"),
            updates_at_risk=new.gauge(
                "updates_at_risk", "Acknowledged updates since the last checkpoint."
            ),
            staleness=new.staleness(),
            push_bytes=new.counter("push_bytes", "Payload bytes of pushes received."),
            fetch_bytes=new.counter("fetch_bytes", "Payload bytes of fetches answered."),
            apply_seconds=new.counter("apply_seconds", "Time spent applying updates."),
            checkpoint_seconds=new.seconds("checkpoint_seconds", "Time to write a checkpoint."),
            checkpoint_blocking_seconds=new.seconds(
                "checkpoint_blocking_seconds", "Time for which a checkpoint stopped updates."
            ),
            checkpoint_failures=new.counter("checkpoint_failures", "Checkpoints not written."),
            ledger_records_missing=new.ledger_records_missing(),
            messages_dropped=new.counter(
                "messages_dropped", "Messages that are not this protocol's.", "reason"
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchMetrics:
    """What the coordinator counts of a batch method; zeros for other strategies."""

    iteration: Gauge
    evaluations: Gauge
    objective: Gauge
    gradient_norm: Gauge
    returns: Gauge
    groups_done: Counter
    groups_requeued: Counter
    groups_copied: Counter

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Make the group in `registry`, once per registry."""
        new = _Maker(registry)
        return cls(
            iteration=new.gauge("batch_iteration", "Points that a batch method has accepted."),
            evaluations=new.gauge("batch_evaluations", "Evaluations of loss and gradient."),
            objective=new.gauge("batch_objective", "Loss over the batch at the accepted point."),
            gradient_norm=new.gauge(
                "batch_gradient_norm", "Largest absolute value of the gradient's elements there."
            ),
            returns=new.gauge("batch_returns", "How often all went back to a checkpoint."),
            groups_done=new.counter("batch_groups_done", "Groups of portions that count."),
            groups_requeued=new.counter(
                "batch_groups_requeued", "Groups that came back without a result."
            ),
            groups_copied=new.counter(
                "batch_groups_copied", "Backup tasks: copies of groups that somebody had begun."
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorMetrics:
    """What the coordinator counts for the whole job."""

    phase: Gauge
    """Label `phase`: 1 where the job stands, 0 elsewhere."""
    members: Gauge
    """Label `role`."""
    shards_wanted: Gauge
    restarts: Counter
    """Label `role`: lives after the first."""
    samples: Gauge
    epoch: Gauge
    progress: Gauge
    remaining_seconds: Gauge
    samples_per_second: Gauge
    loss: Gauge
    measure: Gauge
    """Label `name`: the task's own measures."""
    portions_done: Counter
    portions_requeued: Counter
    samples_repeated: Counter
    updates_lost: Counter
    checkpoint_timestamp: Gauge
    """Seconds since 1970; NaN before training."""
    checkpoint_interval: Gauge
    """Seconds; infinite for a job without checkpoints."""
    checkpoint_seconds: Histogram
    checkpoint_failures: Counter
    checkpoints_damaged: Counter
    staleness_bound: Gauge
    messages_dropped: Counter
    """Label `reason`: why the transport dropped what arrived."""

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Make the group in `registry`, once per registry."""
        new = _Maker(registry)
        return cls(
            phase=new.gauge("job_phase", "1 for the phase that the job is in, else 0.", "phase"),
            members=new.gauge("members", "Members that live, by role.", "role"),
            shards_wanted=new.gauge("shards_wanted", "Shards that the job asks for."),
            restarts=new.counter("restarts", "Restarts of processes by role.", "role"),
            samples=new.gauge("job_samples", "Training samples that the job has processed."),
            epoch=new.gauge("epoch", "Epochs done, with the fraction of the current one."),
            progress=new.gauge("progress_ratio", "How much of the job is done, from 0 to 1."),
            remaining_seconds=new.gauge("remaining_seconds", "Estimated time to the end."),
            samples_per_second=new.gauge(
                "samples_per_second", "Samples per second of all replicas."
            ),
            loss=new.gauge(
                "job_loss", "Mean training loss over the replicas; of a batch method its objective."
            ),
            measure=new.gauge("measure", "Latest measures on the test split.", "name"),
            portions_done=new.counter("portions_done", "Portions processed completely."),
            portions_requeued=new.counter("portions_requeued", "Portions given out again."),
            samples_repeated=new.counter("samples_repeated", "Samples processed more than once."),
            updates_lost=new.counter(
                "updates_lost",
                "Acknowledged updates lost with a shard; on a cluster at least so many.",
            ),
            checkpoint_timestamp=new.gauge(
                "job_checkpoint_timestamp_seconds",
                "When the last complete checkpoint was begun, or training before the first.",
            ),
            checkpoint_interval=new.gauge(
                "job_checkpoint_interval_seconds", "Time between checkpoints that the job asks for."
            ),
            checkpoint_seconds=new.seconds("job_checkpoint_seconds", "Time of whole checkpoints."),
            checkpoint_failures=new.counter("job_checkpoint_failures", "Checkpoints that failed."),
            checkpoints_damaged=new.counter(
                "job_checkpoints_damaged", "Checkpoints that a shard found damaged."
            ),
            staleness_bound=new.gauge(
                "staleness_bound_updates",
                "Staleness that replicas of about equal speed stay far below.",
            ),
            messages_dropped=new.counter(
                "messages_dropped", "Messages that are not this protocol's.", "reason"
            ),
        )


class _Maker:
    """Adds the prefix and the registry to each definition."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"disttrain_{name}", text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"disttrain_{name}", text, labels, registry=self._registry)

    def seconds(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"disttrain_{name}", text, registry=self._registry, buckets=SECONDS_BUCKETS
        )

    def ledger_records_missing(self) -> Counter:
        text = "Records of the process's ledger that a full disk refused."
        return self.counter("ledger_records_missing", text)

    def staleness(self) -> Histogram:
        return Histogram(
            "disttrain_gradient_staleness_updates",
            "Updates that a shard applied between a gradient's parameters and the gradient.",
            registry=self._registry,
            buckets=STALENESS_BUCKETS,
        )
