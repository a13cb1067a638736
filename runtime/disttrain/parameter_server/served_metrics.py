"""The shard's Prometheus metrics: the counters of each heartbeat's report, served over HTTP."""

from collections.abc import Mapping

from disttrain.coordinator.protocol.reports import STALENESS_BOUNDS, ShardReport
from disttrain.parameter_server.holder_side import BatchFigures
from disttrain.telemetry import exporter, metrics
from disttrain.telemetry.health import Health


class ServedMetrics:
    """Brings the series up to date whenever a report is made; one thread."""

    def __init__(self, address: str) -> None:
        """Serve on `address`. Raises MetricsAddressError."""
        registry = metrics.new_registry()
        self._metrics = metrics.ShardMetrics(registry)
        self._totals = metrics.Totals()
        self._staleness: tuple[int, ...] = (0,) * len(STALENESS_BOUNDS)
        self.health = Health()
        """Of the process."""
        self.address = exporter.start(address, registry, self.health)

    def observed(self, now: ShardReport) -> None:
        self._metrics.version.set(now.version)
        self._totals.reach(self._metrics.updates_applied, now.applied)
        self._totals.reach(self._metrics.apply_seconds, now.busy_seconds)
        for reason, count in (now.refused or {}).items():
            self._totals.reach(self._metrics.updates_refused, count, reason)
        counts = zip(STALENESS_BOUNDS, now.staleness, self._staleness, strict=True)
        for bound, count, counted in counts:
            for _ in range(count - counted):
                self._metrics.staleness.observe(bound)
        self._staleness = now.staleness

    def life(self, incarnation: int) -> None:
        """Which life of the shard this is."""
        self._metrics.incarnation.set(incarnation)

    def at_risk(self, updates: int) -> None:
        """Acknowledged updates that are in no checkpoint."""
        self._metrics.updates_at_risk.set(updates)

    def moved(self, pushed_bytes: int, fetched_bytes: int) -> None:
        """Payload so far."""
        self._totals.reach(self._metrics.push_bytes, pushed_bytes)
        self._totals.reach(self._metrics.fetch_bytes, fetched_bytes)

    def batch(self, now: BatchFigures) -> None:
        self._metrics.staged_bytes.set(now.staged_bytes)
        self._totals.reach(self._metrics.orders, now.orders)
        self._totals.reach(self._metrics.order_seconds, now.order_seconds)

    def checkpoint(self, seconds: float, blocking_seconds: float) -> None:
        """One was written."""
        self._metrics.checkpoint_seconds.observe(seconds)
        self._metrics.checkpoint_blocking_seconds.observe(blocking_seconds)

    def checkpoint_failed(self) -> None:
        """One could not be written."""
        self._metrics.checkpoint_failures.inc()

    def dropped(self, refused: Mapping[str, int]) -> None:
        """What the transport has dropped so far, by reason."""
        for reason, count in refused.items():
            self._totals.reach(self._metrics.messages_dropped, count, reason)

    def missing(self, records: int) -> None:
        """Records that the ledger lacks so far."""
        self._totals.reach(self._metrics.ledger_records_missing, records)
