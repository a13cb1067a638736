"""Which data was trained, which twice, and what was lost."""

from typing import Final

from disttrain_monitoring import query
from disttrain_monitoring.panel import Limits, Panel, Row
from disttrain_monitoring.query import Query


def _increase(counter: str) -> str:
    return query.total(query.increase(query.of_job(counter)))


ROW: Final = Row(
    "Data",
    (
        Panel(
            title="Portions done and given out again",
            means="Portions are the parts of the data that replicas get. Given out again: a "
            "replica died or was silent for coordinator.leaseSeconds.",
            queries=(
                Query(_increase("disttrain_portions_done_total"), "done"),
                Query(_increase("disttrain_portions_requeued_total"), "given out again"),
            ),
        ),
        Panel(
            title="Samples repeated",
            means="Samples that were trained more than once because who trained them died before "
            "it could say so. It stays small beside the size of the data.",
            queries=(
                Query(query.largest(query.of_job("disttrain_samples_repeated_total")), "samples"),
            ),
        ),
        Panel(
            title="Updates lost, at least",
            means="Acknowledged updates that died with a shard, at least: a lost node takes counts "
            "with it. Shorten checkpoint.everySeconds if it matters, and find out why shards die.",
            queries=(
                Query(query.largest(query.of_job("disttrain_updates_lost_total")), "updates"),
            ),
            limits=Limits(warning=1, bad=1000),
        ),
        Panel(
            title="Epochs",
            means="Passes over the data. A line that stops rising while the phase is Running: the "
            "job is stuck.",
            queries=(Query(query.largest(query.of_job("disttrain_epoch")), "epochs"),),
            width=12,
        ),
        Panel(
            title="Records missing in the ledger",
            means="Records for disttrain audit that a full volume refused. Any: the audit of this "
            "run will say that it cannot know everything. Make room on the volume.",
            queries=(
                Query(
                    query.total(query.of_job("disttrain_ledger_records_missing_total"), "pod"),
                    "{{pod}}",
                ),
            ),
            limits=Limits(warning=1, bad=1),
            width=12,
        ),
    ),
)
