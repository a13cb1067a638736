"""What a death would cost, and what it costs to avoid that."""

from typing import Final

from disttrain_monitoring import query
from disttrain_monitoring.panel import Limits, Panel, Row
from disttrain_monitoring.query import Query

ROW: Final = Row(
    "Checkpoints",
    (
        Panel(
            title="Age of the last checkpoint",
            means="It rises to the interval of the manifest and falls to zero. Far above the "
            "interval: checkpoints fail or take long; look at the volume's free space and speed.",
            queries=(
                Query(
                    "time() - "
                    + query.largest(query.of_job("disttrain_job_checkpoint_timestamp_seconds")),
                    "age",
                ),
                Query(
                    query.largest(query.of_job("disttrain_job_checkpoint_interval_seconds")),
                    "interval",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Updates at risk by shard",
            means="Acknowledged updates in no checkpoint. Too many for your taste: a shorter "
            "checkpoint.everySeconds.",
            queries=(Query(query.of_job("disttrain_updates_at_risk"), "{{pod}}"),),
        ),
        Panel(
            title="Time for which checkpoints stopped updates",
            means="Per checkpoint of a shard, 99% are below the line. More than a step's time: "
            "the shards' values are large; more shards share them.",
            queries=(
                Query(
                    query.quantile(
                        0.99, query.of_job("disttrain_checkpoint_blocking_seconds_bucket")
                    ),
                    "99%",
                ),
            ),
            unit="s",
            limits=Limits(warning=0.5, bad=5),
        ),
        Panel(
            title="Time of whole checkpoints",
            means="From the cut to the manifest, on all shards. Near the interval: checkpoints "
            "follow each other without a pause; a faster volume, or a longer interval.",
            queries=(
                Query(
                    query.quantile(0.99, query.of_job("disttrain_job_checkpoint_seconds_bucket")),
                    "99%",
                ),
            ),
            unit="s",
            width=12,
        ),
        Panel(
            title="Checkpoints that failed",
            means="Any: the coordinator's log says why; most often the volume is full or away.",
            queries=(
                Query(
                    query.total(
                        query.increase(query.of_job("disttrain_job_checkpoint_failures_total"))
                    ),
                    "whole",
                ),
                Query(
                    query.total(
                        query.increase(query.of_job("disttrain_checkpoint_failures_total")), "pod"
                    ),
                    "{{pod}}",
                ),
            ),
            limits=Limits(warning=1, bad=2),
            width=12,
        ),
    ),
)
