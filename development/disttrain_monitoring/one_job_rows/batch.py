"""How a batch method (sandblaster) is doing; empty for other strategies."""

from typing import Final

from disttrain_monitoring import query
from disttrain_monitoring.panel import Panel, Row
from disttrain_monitoring.query import Query


def _increase(counter: str) -> str:
    return query.total(query.increase(query.of_job(counter)))


def _of_method(name: str) -> str:
    return query.largest(query.of_job(f"disttrain_sandblaster_{name}"))


ROW: Final = Row(
    "Sandblaster",
    (
        Panel(
            title="Objective",
            means="Loss over the batch at the point accepted last. It never rises, but when a "
            "shard was lost and all went back to a checkpoint.",
            queries=(Query(_of_method("objective"), "loss"),),
        ),
        Panel(
            title="Gradient",
            means="The largest absolute value of the gradient's elements. The method ends when it "
            "is below optimizer.*.gradientTolerance.",
            queries=(
                Query(
                    _of_method("gradient_max_norm"),
                    "gradient",
                ),
            ),
        ),
        Panel(
            title="Iterations and evaluations",
            means="Both counted up to now. Many more evaluations than iterations: the line search "
            "finds no step at once; the portions may be too small for float32, or the loss is not "
            "smooth.",
            queries=(
                Query(_of_method("iteration"), "iterations"),
                Query(_of_method("evaluations"), "evaluations"),
            ),
        ),
        Panel(
            title="Groups done, given out again, backup tasks",
            means="Groups of portions. Given out again: a replica died or was silent. Backup "
            "tasks: a replica is slow; many of them in each evaluation: the slowest "
            "replica needs a faster machine or smaller portions.",
            queries=(
                Query(_increase("disttrain_sandblaster_groups_done_total"), "done"),
                Query(_increase("disttrain_sandblaster_groups_requeued_total"), "given out again"),
                Query(_increase("disttrain_sandblaster_backup_tasks_total"), "backup tasks"),
            ),
        ),
        Panel(
            title="Gradients that wait for their commit",
            means="Bytes that shards hold of gradients of which the coordinator has not said yet "
            "whether they count.",
            queries=(Query(query.of_job("disttrain_staged_bytes"), "{{pod}}"),),
            unit="bytes",
        ),
        Panel(
            title="Rollbacks to a checkpoint",
            means="How often a shard was lost and all went back. What was computed since then is "
            "computed again, with the same result.",
            queries=(Query(_of_method("rollbacks"), "rollbacks"),),
        ),
    ),
)
