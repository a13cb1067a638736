"""Whether the job learns, and how fast."""

from typing import Final

from disttrain_monitoring import query
from disttrain_monitoring.panel import Kind, Limits, Panel, Row
from disttrain_monitoring.query import Query

ROW: Final = Row(
    "Training",
    (
        Panel(
            title="Samples per second",
            means="Of the whole job, and of each replica. One replica far below the others: its "
            "node is slow or shared. All falling together: the parameter server or the network "
            "is the limit, see the time of pushes and fetches.",
            queries=(
                Query(query.largest(query.of_job("disttrain_samples_per_second")), "whole job"),
                Query(
                    query.total(query.rate(query.of_job("disttrain_samples_total")), "pod"),
                    "{{pod}}",
                ),
            ),
            width=6,
        ),
        Panel(
            title="Loss",
            means="Mean training loss, of the job and of each replica. Rising: the learning rate "
            "is too high for so much staleness; lower it or use fewer replicas.",
            queries=(
                Query(query.largest(query.of_job("disttrain_job_loss")), "whole job"),
                Query(query.of_job("disttrain_loss"), "{{pod}}"),
            ),
            width=6,
        ),
        Panel(
            title="Learning rate",
            means="Of the next update, as the job's schedule has it, before the factors of single "
            "parameters. It follows the samples of the whole job.",
            queries=(Query(query.largest(query.of_job("disttrain_learning_rate")), "rate"),),
            width=6,
        ),
        Panel(
            title="Measures",
            means="The task's own measures on its test split, from the last evaluation.",
            queries=(Query(query.largest(query.of_job("disttrain_measure"), "name"), "{{name}}"),),
            width=6,
        ),
        Panel(
            title="Where replicas spend their time",
            means="Share of the training thread by what it does, over all replicas. Much data: "
            "load with more workers. Much push or fetch: more shards, or rarer pushes and fetches.",
            queries=(
                Query(
                    query.total(query.rate(query.of_job("disttrain_step_seconds_total")), "doing")
                    + " / ignoring (doing) group_left () "
                    + query.total(query.rate(query.of_job("disttrain_step_seconds_total"))),
                    "{{doing}}",
                ),
            ),
            unit="percentunit",
            kind=Kind.STACK,
            width=8,
        ),
        Panel(
            title="Waiting of partitions",
            means="Share of its time in which a partition of a divided model computes nothing, "
            "since it sends to others of its replica or waits for them. All high: take fewer "
            "partitions, or larger batches. One far below the others: they wait for it. Always 0 "
            "where models are not divided.",
            queries=(
                Query(
                    query.total(
                        query.rate(query.of_job("disttrain_partition_waiting_seconds_total")), "pod"
                    ),
                    "{{pod}}",
                ),
            ),
            unit="percentunit",
            width=8,
        ),
        Panel(
            title="Gradients that were not finite",
            means="Gradients that were thrown away. Any: the training diverges; the job fails at "
            "failurePolicy.maxNonFiniteGradients. Lower the learning rate.",
            queries=(
                Query(
                    query.total(
                        query.increase(query.of_job("disttrain_non_finite_gradients_total")), "pod"
                    ),
                    "{{pod}}",
                ),
            ),
            limits=Limits(warning=1, bad=5),
            width=8,
        ),
    ),
)
