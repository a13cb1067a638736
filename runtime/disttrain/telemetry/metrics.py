"""Every metric that a process of a job serves: names, units, labels and buckets in one place.

A process makes one registry, registers the group of its role in it and hands the registry to the
exporter. Job names are no labels: the series are scraped from the job's own processes.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""From a push of a small model in shared memory to a fetch that waits for a shard's restart."""

STALENESS_BUCKETS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024)
"""Updates; exact where few replicas live, coarser above."""


def new_registry() -> CollectorRegistry:
    """Return an empty registry; a process has one."""
    return CollectorRegistry()


class Totals:
    """Brings counters up to what has been counted elsewhere since the process started."""

    def __init__(self) -> None:
        self._counted: dict[tuple[Counter, str], float] = {}

    def reach(self, counter: Counter, total: float, label: str = "") -> None:
        """`label`: the value of the counter's only label, if it has one."""
        grown = total - self._counted.get((counter, label), 0.0)
        self._counted[counter, label] = total
        (counter.labels(label) if label else counter).inc(max(0.0, grown))


class ExporterMetrics:
    """What the exporter of every process counts of itself, from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        new = _Maker(registry)
        self.connections_cut = new.counter(
            "metrics_connections_cut",
            "Connections to the metrics port that ended without an answer.",
            "reason",
        )
        """Label `reason`: limit, too many at once; error, the peer went or was not understood."""


class ReplicaMetrics:
    """What a replica counts. The methods of all fields may be called from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        new = _Maker(registry)
        self.samples = new.counter("samples", "Training samples processed.")
        self.steps = new.counter("steps", "Training steps computed.")
        self.loss = new.gauge("loss", "Mean training loss since the last report.")
        self.step_seconds = new.counter(
            "step_seconds", "Time of the training thread by what it did.", "doing"
        )
        """Label `doing`: computing, data, push or fetch; the last three are time spent waiting."""
        self.push_seconds = new.seconds("push_seconds", "From a push's start to its last reply.")
        self.push_bytes = new.counter("push_bytes", "Payload bytes pushed.")
        self.fetch_seconds = new.seconds("fetch_seconds", "Time of a fetch from all shards.")
        self.fetch_bytes = new.counter("fetch_bytes", "Payload bytes fetched.")
        self.staleness = new.staleness()
        self.non_finite_gradients = new.counter(
            "non_finite_gradients", "Gradients not pushed because they were not finite."
        )
        self.ledger_records_missing = new.ledger_records_missing()


class ShardMetrics:
    """What a shard counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        new = _Maker(registry)
        self.version = new.gauge("shard_version", "Updates that this shard has applied.")
        self.incarnation = new.gauge("shard_incarnation", "Life number of this shard.")
        self.updates_applied = new.counter("updates_applied", "Updates applied completely.")
        self.updates_refused = new.counter("updates_refused", "Updates refused.", "reason")
        """Label `reason`: the lower-case name of the refusal."""
        self.updates_at_risk = new.gauge(
            "updates_at_risk", "Acknowledged updates since the last checkpoint."
        )
        self.staleness = new.staleness()
        self.push_bytes = new.counter("push_bytes", "Payload bytes of pushes received.")
        self.fetch_bytes = new.counter("fetch_bytes", "Payload bytes of fetches answered.")
        self.apply_seconds = new.counter("apply_seconds", "Time spent applying updates.")
        self.checkpoint_seconds = new.seconds("checkpoint_seconds", "Time to write a checkpoint.")
        self.checkpoint_blocking_seconds = new.seconds(
            "checkpoint_blocking_seconds", "Time for which a checkpoint stopped updates."
        )
        self.checkpoint_failures = new.counter("checkpoint_failures", "Checkpoints not written.")
        self.ledger_records_missing = new.ledger_records_missing()
        self.messages_dropped = new.counter(
            "messages_dropped", "Messages that are not this protocol's.", "reason"
        )
        """Label `reason`: why the transport dropped what arrived."""
        self.staged_bytes = new.gauge(
            "staged_bytes", "Gradients of a batch method that no order has committed yet."
        )
        self.orders = new.counter("orders", "Orders of a batch method carried out on vectors.")
        self.order_seconds = new.counter("order_seconds", "Time spent on orders of a batch method.")


class BatchMetrics:
    """What the coordinator counts of a batch method; zeros for other strategies."""

    def __init__(self, registry: CollectorRegistry) -> None:
        new = _Maker(registry)
        self.iteration = new.gauge("batch_iteration", "Points that a batch method has accepted.")
        self.evaluations = new.gauge("batch_evaluations", "Evaluations of loss and gradient.")
        self.objective = new.gauge("batch_objective", "Loss over the batch at the accepted point.")
        self.gradient_norm = new.gauge(
            "batch_gradient_norm", "Largest absolute value of the gradient's elements there."
        )
        self.returns = new.gauge("batch_returns", "How often all went back to a checkpoint.")
        self.groups_done = new.counter("batch_groups_done", "Groups of portions that count.")
        self.groups_requeued = new.counter(
            "batch_groups_requeued", "Groups that came back without a result."
        )
        self.groups_copied = new.counter(
            "batch_groups_copied", "Backup tasks: copies of groups that somebody had begun."
        )


class CoordinatorMetrics:
    """What the coordinator counts for the whole job."""

    def __init__(self, registry: CollectorRegistry) -> None:
        new = _Maker(registry)
        self.phase = new.gauge("job_phase", "1 for the phase that the job is in, else 0.", "phase")
        """Label `phase`: 1 where the job stands, 0 elsewhere."""
        self.members = new.gauge("members", "Members that live, by role.", "role")
        """Label `role`."""
        self.shards_wanted = new.gauge("shards_wanted", "Shards that the job asks for.")
        self.restarts = new.counter("restarts", "Restarts of processes by role.", "role")
        """Label `role`: lives after the first."""
        self.samples = new.gauge("job_samples", "Training samples that the job has processed.")
        self.epoch = new.gauge("epoch", "Epochs done, with the fraction of the current one.")
        self.progress = new.gauge("progress_ratio", "How much of the job is done, from 0 to 1.")
        self.remaining_seconds = new.gauge("remaining_seconds", "Estimated time to the end.")
        self.samples_per_second = new.gauge(
            "samples_per_second", "Samples per second of all replicas."
        )
        self.loss = new.gauge(
            "job_loss", "Mean training loss over the replicas; of a batch method its objective."
        )
        self.measure = new.gauge("measure", "Latest measures on the test split.", "name")
        """Label `name`: the task's own measures."""
        self.portions_done = new.counter("portions_done", "Portions processed completely.")
        self.portions_requeued = new.counter("portions_requeued", "Portions given out again.")
        self.samples_repeated = new.counter("samples_repeated", "Samples processed more than once.")
        self.updates_lost = new.counter(
            "updates_lost",
            "Acknowledged updates lost with a shard; on a cluster at least so many.",
        )
        self.checkpoint_timestamp = new.gauge(
            "job_checkpoint_timestamp_seconds",
            "When the last complete checkpoint was begun, or training before the first.",
        )
        """Seconds since 1970; NaN before training."""
        self.checkpoint_interval = new.gauge(
            "job_checkpoint_interval_seconds", "Time between checkpoints that the job asks for."
        )
        """Seconds; infinite for a job without checkpoints."""
        self.checkpoint_seconds = new.seconds(
            "job_checkpoint_seconds", "Time of whole checkpoints."
        )
        self.checkpoint_failures = new.counter(
            "job_checkpoint_failures", "Checkpoints that failed."
        )
        self.checkpoints_damaged = new.counter(
            "job_checkpoints_damaged", "Checkpoints that a shard found damaged."
        )
        self.staleness_bound = new.gauge(
            "staleness_bound_updates",
            "Staleness that replicas of about equal speed stay far below.",
        )
        self.messages_dropped = new.counter(
            "messages_dropped", "Messages that are not this protocol's.", "reason"
        )
        """Label `reason`: why the transport dropped what arrived."""


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
