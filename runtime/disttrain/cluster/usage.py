"""What the pods of a job do and use: their own metrics, and those of the cluster where it has them.

A pod's metrics are fetched through the API server, which needs no route to the pod. This module is
slow to import and needs the extra `cluster`: only a command that has connected imports it.
"""

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kubernetes.utils.quantity import parse_quantity
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from disttrain.cluster import kubectl_text, pods
from disttrain.cluster.errors import ClusterError, Unreachable
from disttrain.cluster.interface import Object, Request, Verb
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.pods import Pod
from disttrain.cluster.resources import POD_METRICS, PODS
from disttrain.job.pod_layout import METRICS_PORT

MEASURED_SECONDS: Final = 2.0
PARALLEL: Final = 8
NAMED: Final = 3
"""Pods that a note names."""
SAMPLES: Final = "disttrain_samples_total"
UPDATES: Final = "disttrain_updates_applied_total"
COMMANDS: Final = "disttrain_vector_commands_total"
_FORMER: Final = {"disttrain_orders_total": COMMANDS}
"""Names that the images of jobs may still serve, which keep their version."""
STALENESS: Final = "disttrain_gradient_staleness_updates"
NO_METRICS_API: Final = (
    "CPU and memory are not known: the cluster has no metrics API (metrics-server serves it)."
)


def used_by(pod_metrics: Object) -> Object:
    """CPU in cores and memory in bytes of all containers of a pod. ValueError for other texts."""
    used = [each.get("usage") or {} for each in pod_metrics.get("containers") or []]
    return {
        name: float(sum(parse_quantity(each.get(name, "0")) for each in used))
        for name in ("cpu", "memory")
    }


@dataclass(frozen=True, slots=True)
class Metrics:
    """Samples of one process by name, and its histograms by name and bound."""

    values: dict[str, float]
    """Sums over labels."""
    buckets: dict[str, dict[float, float]]
    """Counts up to each bound."""

    def quantile(self, name: str, share: float) -> float | None:
        """The bound below which a share of a histogram lies; None while it is empty."""
        bounds = sorted(self.buckets.get(name, {}).items())
        total = bounds[-1][1] if bounds else 0
        if not total:
            return None
        return next(bound for bound, count in bounds if count >= share * total)


def parse_metrics(text: str) -> Metrics:
    """Read the text format of Prometheus; lines of other shapes are passed over."""
    metrics = Metrics({}, {})
    for line in text.splitlines():
        # Line by line, and with the errors that the library has for what is none.
        with suppress(ValueError, IndexError):
            for family in text_string_to_metric_families(line):
                for sample in family.samples:
                    _add(metrics, sample)
    return metrics


def _add(metrics: Metrics, sample: Sample) -> None:
    if not math.isfinite(sample.value):
        return
    if sample.name.endswith("_bucket") and "le" in sample.labels:
        counts = metrics.buckets.setdefault(sample.name.removesuffix("_bucket"), {})
        limit = float(sample.labels["le"])
        counts[limit] = counts.get(limit, 0) + sample.value
    else:
        name = _FORMER.get(sample.name, sample.name)
        metrics.values[name] = metrics.values.get(name, 0) + sample.value


def measure(jobs: Jobs, job: Object) -> tuple[str, list[str]]:
    """A table of what all pods of a job do and use, and notes of what could not be found out.

    Looks at the pods twice, some seconds apart. Raises ClusterError, Unreachable.
    """
    members = pods.in_order(jobs.pods(job))
    before, began = _scrape(jobs, members), time.monotonic()
    time.sleep(MEASURED_SECONDS if any(before) else 0)
    after, seconds = _scrape(jobs, members), time.monotonic() - began
    used = _resources(jobs, job)
    counter = COMMANDS if "sandblaster" in job["spec"]["strategy"] else UPDATES
    rows = (
        row(pod, (first, second), seconds, (used or {}).get(pod.name, {}), counter)
        for pod, first, second in zip(members, before, after, strict=True)
    )
    return kubectl_text.table([head(counter), *rows]), _notes(members, after, used)


def head(counter: str) -> list[str]:
    """Gradients of a batch method, whose shards count commands, are never stale."""
    own = ["UPDATES/S", "STALENESS P50/P99"] if counter == UPDATES else ["COMMANDS/S"]
    return ["POD", "STATUS", "SAMPLES/S", *own, "CPU", "MEMORY"]


def row(
    pod: Pod,
    scraped: tuple[Metrics | None, Metrics | None],
    seconds: float,
    used: Object,
    counter: str,
) -> list[str]:
    """The cells of one pod; `used` is its `cpu` and `memory` as the cluster measures them."""
    return [
        kubectl_text.printable(pod.name),
        kubectl_text.printable(pod.state),
        _count(_rate(scraped, SAMPLES, seconds)),
        _count(_rate(scraped, counter, seconds)),
        *([_staleness(scraped[1])] if counter == UPDATES else []),
        # As kubectl shows them.
        f"{used['cpu'] * 1000:.0f}m" if "cpu" in used else "",
        f"{used['memory'] / 2**20:.0f}Mi" if "memory" in used else "",
    ]


def _staleness(latest: Metrics | None) -> str:
    """Median and 99th percentile of a pod's gradients, or of those that it applied."""
    if latest is None:
        return ""
    found = (latest.quantile(STALENESS, share) for share in (0.5, 0.99))
    return "/".join(f"{each:g}" for each in found if each is not None)


def _count(rate: float | None) -> str:
    if rate is None:
        return ""
    # An evaluation of a large batch may take seconds.
    return f"{rate:.1f}" if 0 < rate < 10 else f"{rate:,.0f}"


def _rate(
    scraped: tuple[Metrics | None, Metrics | None], name: str, seconds: float
) -> float | None:
    first, second = (None if each is None else each.values.get(name) for each in scraped)
    # A counter that fell belongs to a process that started again.
    if first is None or second is None or second < first or seconds <= 0:
        return None
    return (second - first) / seconds


def _scrape(jobs: Jobs, members: Sequence[Pod]) -> list[Metrics | None]:
    with ThreadPoolExecutor(PARALLEL) as threads:
        return list(threads.map(lambda pod: _metrics(jobs, pod), members))


def _metrics(jobs: Jobs, pod: Pod) -> Metrics | None:
    if not pod.is_running:
        return None
    path = PODS.path(jobs.namespace, f"{pod.name}:{METRICS_PORT}", "proxy/metrics")
    try:
        return parse_metrics(jobs.api.text(Request(verb=Verb.GET, path=path, accept="*/*")))
    except (ClusterError, Unreachable):
        return None


def _resources(jobs: Jobs, job: Object) -> dict[str, Object] | None:
    """CPU and memory of each pod's processes; None where the cluster does not measure them."""
    try:
        found = list(jobs.of_pods(POD_METRICS, job))
    except (ClusterError, Unreachable):
        return None
    return {each["metadata"]["name"]: used_by(each) for each in found}


def _notes(
    members: Sequence[Pod], after: Sequence[Metrics | None], used: dict[str, Object] | None
) -> list[str]:
    notes = []
    silent = [pod for pod, found in zip(members, after, strict=True) if found is None]
    asked = [pod for pod in silent if pod.is_running]
    if asked:
        notes.append(
            f"No metrics of {', '.join(pod.name for pod in asked[:NAMED])}"
            + (f" and {len(asked) - NAMED} more" if len(asked) > NAMED else "")
            + ": the processes are starting, or you may not get pods/proxy in this namespace."
        )
    if not members:
        notes.append("The job has no pods just now.")
    elif used is None:
        notes.append(NO_METRICS_API)
    return notes
