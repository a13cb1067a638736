"""What a shard tells the coordinator about itself, and serves to Prometheus out of that."""

from collections.abc import Callable, Mapping

from disttrain.coordinator.protocol.fields import (
    MOST_DAMAGED,
    LostUpdates,
    Position,
    Restored,
    RestoredSender,
    SenderPosition,
)
from disttrain.coordinator.protocol.reports import (
    STALENESS_BOUNDS,
    Predicted,
    ShardReport,
    staleness_bucket,
)
from disttrain.parameter_server.acknowledged import Count
from disttrain.parameter_server.deliveries import NOTHING, Delivered, Deliveries, SenderIncarnation
from disttrain.parameter_server.holder_side import BatchFigures
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.shard import Shard
from disttrain.telemetry import metrics
from disttrain.telemetry.exporter import Served
from disttrain.telemetry.metrics import Histogram, Metrics, counter, counters, gauge, gauges


def position_of(incarnation: SenderIncarnation, state: Delivered) -> SenderPosition:
    return SenderPosition(
        index=incarnation.sender,
        incarnation=incarnation.incarnation,
        position=Position(lease=state.lease, offset=state.lease_offset),
        samples=state.samples,
    )


def restored_report(
    restored: RestoredShard | None, counts: Mapping[SenderIncarnation, Count]
) -> Restored | None:
    """What goes into the join of a shard; None for one that has nothing behind it.

    `counts` are those after the rollback to what is restored.
    """
    if restored is None and not counts:
        return None
    delivered = restored.delivered if restored is not None else {}
    return Restored(
        initialised=restored is not None,
        checkpoint=restored.checkpoint if restored is not None else None,
        version=restored.version if restored is not None else 0,
        damaged=restored.damaged[:MOST_DAMAGED] if restored is not None else (),
        senders=tuple(
            _restored_sender(
                incarnation, delivered.get(incarnation, NOTHING), counts.get(incarnation, Count())
            )
            for incarnation in sorted({*delivered, *counts})
        ),
    )


def _restored_sender(
    incarnation: SenderIncarnation, state: Delivered, count: Count
) -> RestoredSender:
    return RestoredSender(
        sender=position_of(incarnation, state),
        acknowledged=count.pushes + count.lost,
        lost=count.lost,
    )


class Reporter:
    """Counts what the loop spends its time on; makes the reports. The shard's thread."""

    def __init__(self, shard: Shard, clock: Callable[[], float]) -> None:
        self.busy_seconds = 0.0
        self.doing = "serving"
        self.shard = shard
        self._clock = clock
        self._began = clock()

    def report(self) -> ShardReport:
        state, records = self.shard.state, self.shard.records
        histogram = [0] * len(STALENESS_BOUNDS)
        for staleness, count in records.staleness.items():
            if staleness >= 0:
                histogram[staleness_bucket(staleness)] += count
        return ShardReport(
            version=state.count,
            applied=records.pushes,
            refused=dict(self.shard.refused),
            staleness=tuple(histogram),
            staleness_unknown=records.staleness.get(-1, 0),
            shortened=records.shortened,
            busy_seconds=self.busy_seconds,
            uptime_seconds=self._clock() - self._began,
            uncounted=records.num_uncounted,
            rate=self.shard.stage.rate if state.is_initialised else None,
            state=self.doing if state.is_initialised else "waiting for values",
            predicted=predicted(self.shard.stage.prediction_errors, state.deliveries),
            lost=tuple(
                LostUpdates(
                    index=incarnation.sender, incarnation=incarnation.incarnation, lost=lost
                )
                for incarnation, lost in records.corrected.items()
            ),
        )


def mean_staleness(deliveries: Deliveries) -> dict[str, float]:
    """Of those that may push, by the index of the replica."""
    return {
        str(sender): deliveries.of(sender, incarnation).mean_staleness
        for sender, incarnation in sorted(deliveries.admitted.items())
    }


def predicted(errors: Mapping[int, float], deliveries: Deliveries) -> dict[str, Predicted]:
    """By the index of a replica, without replicas that are gone."""
    return {
        str(sender): Predicted(
            mean_staleness=deliveries.of(sender, incarnation).mean_staleness, error=errors[sender]
        )
        for sender, incarnation in sorted(deliveries.admitted.items())
        if sender in errors
    }


class ServedMetrics(Served):
    """What the shard's thread notes here is served from the next `update` on."""

    def __init__(self, address: str) -> None:
        """Serve on `address`. Raises MetricsAddressError."""
        self.report = ShardReport()
        self.incarnation = 0
        self.at_risk = 0
        """Acknowledged updates that are in no checkpoint."""
        self.mean_staleness: Mapping[str, float] = {}
        self.pushed_bytes = 0
        self.fetched_bytes = 0
        self.waited_seconds = 0.0
        """That pushes have waited for others, in all."""
        self.batch = BatchFigures()
        self.dropped: Mapping[str, int] = {}
        """By the transport, by reason."""
        self.missing = 0
        """Records that the ledger lacks."""
        self.checkpoint_seconds = Histogram()
        self.blocking_seconds = Histogram()
        self.checkpoint_failures = 0
        super().__init__(address, _metrics_of(self))

    def update(self) -> None:
        self.serve(_metrics_of(self))


def _metrics_of(served: ServedMetrics) -> Metrics:
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
        counter("updates_shortened", "Pushes scaled down to maximumNorm.", report.shortened),
        counter(
            "push_wait_seconds",
            "Seconds that pushes have waited for older gradients of other replicas.",
            served.waited_seconds,
        ),
        gauge("updates_at_risk", "Acknowledged updates since the last checkpoint.", served.at_risk),
        metrics.staleness(STALENESS_BOUNDS, report.staleness),
        gauges(
            "mean_staleness_updates",
            "Mean staleness of a replica's latest 64 to 127 pushes, which a prediction goes by.",
            "replica",
            served.mean_staleness,
        ),
        gauges(
            "prediction_error_ratio",
            "Distance of the parameters predicted for a replica from those that came, by the "
            "distance without a prediction.",
            "replica",
            {sender: found.error for sender, found in report.predicted.items()},
        ),
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
