"""The reference page of all metrics, from the code that serves them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from disttrain.coordinator import strategies
from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.decisions.transaction import Places
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.process.served_metrics import ServedMetrics as CoordinatorMetrics
from disttrain.job import parsing
from disttrain.parameter_server.reporting import ServedMetrics as ShardMetrics
from disttrain.replica.served_metrics import ServedMetrics as ReplicaMetrics
from disttrain.telemetry import exporter
from disttrain_operator.telemetry import metrics as of_operator

_ADDRESS: Final = "127.0.0.1:0"
_JOB: Final = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: any}
spec:
  task: {entrypoint: any:Any}
  strategy: {downpour: {optimizer: {sgd: {learningRate: 0.1}}}}
  parameterServer: {shards: 1}
  replicas: {count: 1}
  batchSize: 1
  stop: {epochs: 1}
"""
_SANDBLASTER: Final = "disttrain_sandblaster_"

_HEAD: Final = """\
# Metrics

<!-- Made by `make generate` from the code that serves them; changes here are overwritten. -->

Every process serves its metrics at `/metrics`: the pods of a job at port 9090, the operator at port
8080, and with `disttrain run` each process at the address that `disttrain status` prints. Counters
and histograms begin at zero with each incarnation of a process. No series carries its job's name:
scraping adds it, see [monitoring](../monitoring.md). A histogram is served as `_bucket`, `_sum`,
`_count`.
"""

FORMER: Final = {
    "disttrain_batch_iteration": "disttrain_sandblaster_iteration",
    "disttrain_batch_evaluations": "disttrain_sandblaster_evaluations",
    "disttrain_batch_objective": "disttrain_sandblaster_objective",
    "disttrain_batch_gradient_norm": "disttrain_sandblaster_gradient_max_norm",
    "disttrain_batch_returns": "disttrain_sandblaster_rollbacks",
    "disttrain_batch_groups_done_total": "disttrain_sandblaster_groups_done_total",
    "disttrain_batch_groups_requeued_total": "disttrain_sandblaster_groups_requeued_total",
    "disttrain_batch_groups_copied_total": "disttrain_sandblaster_backup_tasks_total",
    "disttrain_orders_total": "disttrain_vector_commands_total",
    "disttrain_order_seconds_total": "disttrain_vector_command_seconds_total",
}
"""Names by which metrics were served before, and those that they have now."""

_FORMER_NAMES: Final = """\
## Former names

Images of older versions serve the former names. Change your own dashboards and alerts. While jobs
of both versions run, `metric_relabel_configs` of Prometheus can give the former ones the new names.

| before | now |
|---|---|"""


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
    rows = (f"| `{before}` | `{now}` |" for before, now in FORMER.items())
    return "\n".join((_HEAD, *sections, _FORMER_NAMES, *rows, ""))


def groups() -> dict[str, tuple[Metric, ...]]:
    """Return all metrics by who serves them."""
    coordinator = CoordinatorMetrics(_ADDRESS)
    coordinator.update(_machine(), now=0.0, dropped={})
    served = [_metric(family) for family in coordinator.collect()]
    return {
        "Coordinator": tuple(each for each in served if not each.name.startswith(_SANDBLASTER)),
        "Coordinator, with sandblaster": tuple(
            each for each in served if each.name.startswith(_SANDBLASTER)
        ),
        "Shard": tuple(map(_metric, ShardMetrics(_ADDRESS).collect())),
        "Replica": tuple(map(_metric, ReplicaMetrics(_ADDRESS).collect())),
        "Every process of a job": (_of_library(exporter.connections_cut(CollectorRegistry())),),
        "Operator": tuple(
            _of_library(value)
            for value in vars(of_operator).values()
            if isinstance(value, Counter | Gauge | Histogram)
        ),
    }


def _machine() -> Coordinator:
    job = strategies.stages(parsing.parse_job(_JOB).spec)
    return Coordinator(
        State(), job, Places(model_file="", best_file="", staging=str, checkpoint=str)
    )


def _of_library(collector: Counter | Gauge | Histogram) -> Metric:
    # The library tells nobody which labels a metric has before it has a value.
    return _metric(next(iter(collector.describe())), collector._labelnames)  # noqa: SLF001


def _metric(family: prometheus_client.Metric, labels: Sequence[str] = ()) -> Metric:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = labels or getattr(family, "_labelnames", ())
    return Metric(name=name, kind=family.type, labels=tuple(labels), means=family.documentation)


def _section(title: str, found: tuple[Metric, ...]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {_labels(metric)} | {metric.means} |"
        for metric in found
    ]
    head = (f"## {title}", "", "| name | kind | labels | meaning |", "|---|---|---|---|")
    return "\n".join((*head, *rows, ""))


def _labels(metric: Metric) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)
