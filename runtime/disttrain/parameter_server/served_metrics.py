"""The shard's Prometheus metrics: the counters of each heartbeat's report, served over HTTP."""

from collections.abc import Mapping

from disttrain.coordinator.protocol.reports import STALENESS_BOUNDS, ShardReport
from disttrain.parameter_server.holder_side import BatchFigures
from disttrain.telemetry import metrics
from disttrain.telemetry.exporter import Served
from disttrain.telemetry.metrics import Histogram, Metrics, counter, counters, gauge


class ServedMetrics(Served):
    """What the shard's thread notes here is served from the next `update` on."""

    def __init__(self, address: str) -> None:
        """Serve on `address`. Raises MetricsAddressError."""
        self.report = ShardReport()
        self.incarnation = 0
        self.at_risk = 0
        """Acknowledged updates that are in no checkpoint."""
        self.pushed_bytes = 0
        self.fetched_bytes = 0
        self.batch = BatchFigures()
        self.dropped: Mapping[str, int] = {}
        """By the transport, by reason."""
        self.missing = 0
        """Records that the ledger lacks."""
        self.checkpoint_seconds = Histogram()
        self.blocking_seconds = Histogram()
        self.checkpoint_failures = 0
        super().__init__(address, of(self))

    def update(self) -> None:
        self.serve(of(self))


def of(served: ServedMetrics) -> Metrics:
    report, batch = served.report, served.batch
    # By the lower-case name of the refusal.
    refused = report.refused or {}
    return (
        gauge("shard_version", "Updates that this shard has applied.", report.version),
        gauge("shard_incarnation", "Incarnation of this shard.", served.incarnation),
        gauge(
            "learning_rate",
            "Learning rate of the next update, by the schedule; 0 where there is none.",
            report.rate or 0.0,
        ),
        counter("updates_applied", "Updates applied completely.", report.applied),
        counters("updates_refused", "Updates refused.", "reason", refused),
        gauge("updates_at_risk", "Acknowledged updates since the last checkpoint.", served.at_risk),
        metrics.staleness(STALENESS_BOUNDS, report.staleness),
        counter("push_bytes", "Payload bytes of pushes received.", served.pushed_bytes),
        counter("fetch_bytes", "Payload bytes of fetches answered.", served.fetched_bytes),
        counter("apply_seconds", "Time spent applying updates.", report.busy_seconds),
        served.checkpoint_seconds.served("checkpoint_seconds", "Time to write a checkpoint."),
        served.blocking_seconds.served(
            "checkpoint_blocking_seconds", "Time for which a checkpoint stopped updates."
        ),
        counter("checkpoint_failures", "Checkpoints not written.", served.checkpoint_failures),
        metrics.ledger_records_missing(served.missing),
        metrics.messages_dropped(served.dropped),
        gauge(
            "staged_bytes",
            "Gradients of sandblaster that no command has committed yet.",
            batch.staged_bytes,
        ),
        counter(
            "vector_commands", "Commands of sandblaster carried out on vectors.", batch.commands
        ),
        counter(
            "vector_command_seconds",
            "Time spent on commands of sandblaster.",
            batch.command_seconds,
        ),
    )
