"""The replica's Prometheus metrics: the counters of each heartbeat's report, served over HTTP."""

from collections.abc import Callable

from disttrain.coordinator.protocol.reports import STALENESS_BOUNDS, ReplicaReport
from disttrain.parallel.communicator import Traffic
from disttrain.replica.client_threads import Transfers
from disttrain.replica.connection import Connection
from disttrain.replica.ledger import SILENT
from disttrain.telemetry import metrics
from disttrain.telemetry.exporter import Served
from disttrain.telemetry.metrics import Metrics, counter, counters, gauge


class ServedMetrics(Served):
    """Brings the series up to date whenever a report is made; one thread at a time."""

    def __init__(self, address: str) -> None:
        """Serve on `address`. Raises MetricsAddressError."""
        self.source: Callable[[], ReplicaReport] = ReplicaReport
        """Makes the report; an empty one until the replica trains."""
        self.report = ReplicaReport()
        """The latest."""
        self.loss = 0.0
        """Mean over the steps that it has more than the one before."""
        self.connection: Connection | None = None
        """Where the threads note what they did."""
        self.traffic = Traffic()
        """With the other partitions of this replica, if it has any."""
        super().__init__(address, of(self))

    def latest_report(self) -> ReplicaReport:
        """A new report, which is also what is served from now on."""
        before, self.report = self.report, self.source()
        if steps := self.report.loss_steps - before.loss_steps:
            self.loss = (self.report.loss_sum - before.loss_sum) / steps
        self.serve(of(self))
        return self.report


def of(served: ServedMetrics) -> Metrics:
    report, connection = served.report, served.connection
    pushes = Transfers() if connection is None else connection.pushes.transfers
    fetches = Transfers() if connection is None else connection.fetches.transfers
    ledger = SILENT if connection is None else connection.ledger
    # All but computing is time spent waiting.
    doing = {
        "computing": report.compute_seconds,
        "data": report.data_seconds,
        "push": report.push_seconds,
        "fetch": report.fetch_seconds,
    }
    return (
        counter("samples", "Training samples processed.", report.progress.samples),
        counter("steps", "Training steps computed.", report.steps),
        gauge("loss", "Mean training loss since the last report.", served.loss),
        counters("step_seconds", "Time of the training thread by what it did.", "doing", doing),
        pushes.seconds.served("push_seconds", "From a push's start to its last reply."),
        counter("push_bytes", "Payload bytes pushed.", pushes.nbytes),
        fetches.seconds.served("fetch_seconds", "Time of a fetch from all shards."),
        counter("fetch_bytes", "Payload bytes fetched.", fetches.nbytes),
        metrics.staleness(STALENESS_BOUNDS, report.staleness),
        counter(
            "non_finite_gradients",
            "Gradients not pushed because they were not finite.",
            report.non_finite,
        ),
        metrics.ledger_records_missing(ledger.missing),
        counter(
            "partition_waiting_seconds",
            "Time in which a partition computed nothing, since it sent to others of its replica or "
            "waited for them.",
            served.traffic.waited_seconds,
        ),
    )
