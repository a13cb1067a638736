"""What all processes of a job serve alike: how metrics are named, and kept for scrapes.

Each role makes its metrics anew out of what it counts anyway, so that nothing is counted twice. Job
names are no labels: the series are scraped from the job's own processes.
"""

import bisect
import itertools
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""From a push of a small model in shared memory to a fetch that waits for a shard's restart."""

STALENESS_BUCKETS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024)
"""Updates; exact where few replicas live, coarser above."""

Metrics: TypeAlias = Iterable[prometheus_client.Metric]
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


class Histogram:
    """Counts of values by upper bound. Any thread may use it."""

    def __init__(self, bounds: Sequence[float] = SECONDS_BUCKETS) -> None:
        self._bounds = (*bounds, math.inf)
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float, times: int = 1) -> None:
        with self._lock:
            self._counts[bisect.bisect_left(self._bounds, value)] += times
            self._sum += value * times

    def served(self, name: str, text: str) -> HistogramMetricFamily:
        with self._lock:
            at_most = itertools.accumulate(self._counts)
            buckets = [*zip(map(floatToGoString, self._bounds), at_most, strict=True)]
            return HistogramMetricFamily(f"disttrain_{name}", text, buckets, self._sum)


def counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"disttrain_{name}", text, value)


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"disttrain_{name}", text, value)


def counters(name: str, text: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    return _filled(CounterMetricFamily(f"disttrain_{name}", text, labels=[label]), values)


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    return _filled(GaugeMetricFamily(f"disttrain_{name}", text, labels=[label]), values)


def _filled(family: Family, values: Mapping[str, float]) -> Family:
    """`values`: by what the label says."""
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def staleness(values: Sequence[int], counts: Sequence[int]) -> HistogramMetricFamily:
    """`counts`: how many gradients had each of the values; none of those at its end."""
    found = Histogram(STALENESS_BUCKETS)
    for value, count in zip(values, counts, strict=False):
        found.observe(value, count)
    text = "Updates that a shard applied between a gradient's parameters and the gradient."
    return found.served("gradient_staleness_updates", text)


def ledger_records_missing(count: int) -> CounterMetricFamily:
    text = "Records of the process's ledger that a full disk refused."
    return counter("ledger_records_missing", text, count)


def messages_dropped(counts: Mapping[str, int]) -> CounterMetricFamily:
    """`counts`: by why the transport dropped what arrived."""
    text = "Messages that are not this protocol's."
    return counters("messages_dropped", text, "reason", counts)
