"""The shard's Prometheus metrics: the counters of each heartbeat's report, served over HTTP."""

from collections import Counter

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
        self._last = ShardReport()
        self._dropped: Counter[str] = Counter()
        self._missing = 0
        self._batch = BatchFigures()
        self.health = Health()
        """Of the process."""
        self.address = exporter.start(address, registry, self.health)

    def observed(self, now: ShardReport) -> ShardReport:
        """The same report, which is also what is served from now on."""
        before, self._last = self._last, now
        self._metrics.version.set(now.version)
        self._metrics.updates_applied.inc(now.applied - before.applied)
        self._metrics.apply_seconds.inc(max(0.0, now.busy_seconds - before.busy_seconds))
        for reason, count in (now.refused or {}).items():
            counted = (before.refused or {}).get(reason, 0)
            self._metrics.updates_refused.labels(reason).inc(count - counted)
        self._observe_staleness(now.staleness, before.staleness)
        return now

    def life(self, incarnation: int) -> None:
        """Which life of the shard this is."""
        self._metrics.incarnation.set(incarnation)

    def at_risk(self, updates: int) -> None:
        """Acknowledged updates that are in no checkpoint."""
        self._metrics.updates_at_risk.set(updates)

    def moved(self, pushed_bytes: int, fetched_bytes: int) -> None:
        """Payload since the last call."""
        self._metrics.push_bytes.inc(pushed_bytes)
        self._metrics.fetch_bytes.inc(fetched_bytes)

    def batch(self, now: BatchFigures) -> None:
        """What a batch method has taken so far."""
        before, self._batch = self._batch, now
        self._metrics.staged_bytes.set(now.staged_bytes)
        self._metrics.orders.inc(now.orders - before.orders)
        self._metrics.order_seconds.inc(now.order_seconds - before.order_seconds)

    def checkpoint(self, seconds: float, blocking_seconds: float) -> None:
        """One was written."""
        self._metrics.checkpoint_seconds.observe(seconds)
        self._metrics.checkpoint_blocking_seconds.observe(blocking_seconds)

    def checkpoint_failed(self) -> None:
        """One could not be written."""
        self._metrics.checkpoint_failures.inc()

    def dropped(self, refused: Counter[str]) -> None:
        """What the transport has dropped so far, by reason."""
        for reason, count in refused.items():
            self._metrics.messages_dropped.labels(reason).inc(count - self._dropped[reason])
        self._dropped = Counter(refused)

    def missing(self, records: int) -> None:
        """Records that the ledger lacks so far."""
        self._metrics.ledger_records_missing.inc(records - self._missing)
        self._missing = records

    def _observe_staleness(self, now: tuple[int, ...], before: tuple[int, ...]) -> None:
        padded = (*before, *([0] * (len(now) - len(before))))
        for bound, count, counted in zip(STALENESS_BOUNDS, now, padded, strict=False):
            for _ in range(count - counted):
                self._metrics.staleness.observe(bound)
