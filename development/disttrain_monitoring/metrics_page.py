"""The reference page of all metrics, from the code that serves them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from disttrain.telemetry.metrics import (
    BatchMetrics,
    CoordinatorMetrics,
    ExporterMetrics,
    ReplicaMetrics,
    ShardMetrics,
    new_registry,
)
from disttrain_operator.telemetry import metrics as of_operator

Collector = Counter | Gauge | Histogram

_HEAD: Final = """\
# Metrics

<!-- Made by `make generate` from the code that serves them; changes here are overwritten. -->

Every process serves its metrics at `/metrics`: the pods of a job at port 9090, the operator at port
8080, and with `disttrain run` each process at the address that `disttrain status` prints. Counters
and histograms begin at zero with each life of a process. No series carries its job's name: scraping
adds it, see [monitoring](../monitoring.md). A histogram is served as `_bucket`, `_sum`, `_count`.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One metric as queries name it; of a histogram without its endings."""

    name: str
    kind: str
    labels: tuple[str, ...]
    means: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names that queries may use."""
        if self.kind != "histogram":
            return (self.name,)
        return tuple(f"{self.name}_{ending}" for ending in ("bucket", "sum", "count"))


def page() -> str:
    """Return the whole page, ending with one line feed."""
    sections = (_section(title, found) for title, found in groups().items())
    return "\n".join((_HEAD, *sections))


def groups() -> dict[str, tuple[Metric, ...]]:
    """Return all metrics by who serves them."""
    return {
        "Coordinator": tuple(_of_group(CoordinatorMetrics(new_registry()))),
        "Coordinator of a batch method": tuple(_of_group(BatchMetrics(new_registry()))),
        "Shard": tuple(_of_group(ShardMetrics(new_registry()))),
        "Replica": tuple(_of_group(ReplicaMetrics(new_registry()))),
        "Every process of a job": tuple(_of_group(ExporterMetrics(new_registry()))),
        "Operator": tuple(_of_module()),
    }


def _of_group(
    group: CoordinatorMetrics | BatchMetrics | ShardMetrics | ReplicaMetrics | ExporterMetrics,
) -> Iterator[Metric]:
    yield from map(_metric, vars(group).values())


def _of_module() -> Iterator[Metric]:
    for value in vars(of_operator).values():
        if isinstance(value, Counter | Gauge | Histogram):
            yield _metric(value)


def _metric(collector: Collector) -> Metric:
    family = next(iter(collector.describe()))
    name = f"{family.name}_total" if family.type == "counter" else family.name
    # The library tells nobody which labels a metric has before it has a value.
    labels = tuple(collector._labelnames)  # noqa: SLF001
    return Metric(name=name, kind=family.type, labels=labels, means=family.documentation)


def _section(title: str, found: tuple[Metric, ...]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {_labels(metric)} | {metric.means} |"
        for metric in found
    ]
    head = (f"## {title}", "", "| name | kind | labels | meaning |", "|---|---|---|---|")
    return "\n".join((*head, *rows, ""))


def _labels(metric: Metric) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)
