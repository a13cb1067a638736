"""The replica's Prometheus metrics: the counters of each heartbeat's report, served over HTTP."""

from collections.abc import Callable

from disttrain.coordinator.protocol.reports import STALENESS_BOUNDS, ReplicaReport
from disttrain.replica.connection import Connection
from disttrain.telemetry import exporter, metrics
from disttrain.telemetry.health import Health

_WAITS = ("data", "push", "fetch")


class ServedMetrics:
    """Brings the series up to date whenever a report is made; one thread at a time."""

    def __init__(self, address: str) -> None:
        """Serve on `address`. Raises MetricsAddressError."""
        registry = metrics.new_registry()
        self._metrics = metrics.ReplicaMetrics(registry)
        self._last = ReplicaReport()
        self.health = Health()
        """Of the process."""
        self.address = exporter.start(address, registry, self.health)
        self.source: Callable[[], ReplicaReport] = ReplicaReport
        """Makes the report; an empty one until the replica trains."""
        self.connection: Connection | None = None
        """Where the threads note what they did."""
        self._missing = 0

    def latest_report(self) -> ReplicaReport:
        """A new report, which is also what is served from now on."""
        now, before = self.source(), self._last
        self._last = now
        self._count(now, before)
        if self.connection is not None:
            self._observe_transfers(self.connection)
            missing, self._missing = self._missing, self.connection.ledger.missing
            self._metrics.ledger_records_missing.inc(self._missing - missing)
        return now

    def _count(self, now: ReplicaReport, before: ReplicaReport) -> None:
        self._metrics.samples.inc(now.progress.samples - before.progress.samples)
        self._metrics.steps.inc(now.steps - before.steps)
        self._metrics.non_finite_gradients.inc(now.non_finite - before.non_finite)
        if now.loss_steps > before.loss_steps:
            steps = now.loss_steps - before.loss_steps
            self._metrics.loss.set((now.loss_sum - before.loss_sum) / steps)
        for doing in ("compute", *_WAITS):
            name = f"{doing}_seconds"
            spent = getattr(now, name) - getattr(before, name)
            label = "computing" if doing == "compute" else doing
            self._metrics.step_seconds.labels(label).inc(max(0.0, spent))
        self._observe_staleness(now.staleness, before.staleness)

    def _observe_transfers(self, connection: Connection) -> None:
        for push in connection.pushes.transfers.take():
            self._metrics.push_seconds.observe(push.seconds)
            self._metrics.push_bytes.inc(push.nbytes)
        for fetch in connection.fetches.transfers.take():
            self._metrics.fetch_seconds.observe(fetch.seconds)
            self._metrics.fetch_bytes.inc(fetch.nbytes)

    def _observe_staleness(self, now: tuple[int, ...], before: tuple[int, ...]) -> None:
        padded = (*before, *([0] * (len(now) - len(before))))
        for bound, count, counted in zip(STALENESS_BOUNDS, now, padded, strict=False):
            for _ in range(count - counted):
                self._metrics.staleness.observe(bound)
