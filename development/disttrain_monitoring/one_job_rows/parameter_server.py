"""The shards, and what replicas wait for."""

from typing import Final

from disttrain_monitoring import labels, query
from disttrain_monitoring.panel import Kind, Limits, Panel, Row
from disttrain_monitoring.query import Query

_STALENESS: Final = "disttrain_gradient_staleness_updates_bucket"
_ERROR: Final = "disttrain_prediction_error_ratio"
_OF_SHARDS: Final = f'{labels.COMPONENT}="shard"'


def _moved(counter: str) -> str:
    return query.total(query.rate(query.of_job(counter, _OF_SHARDS)))


ROW: Final = Row(
    "Parameter server",
    (
        Panel(
            title="Time of a push",
            means="From a push's start to its last reply. Above the time of a step: replicas wait "
            "for it; more shards, fewer pushes (pushEvery), or more maxInFlight.",
            queries=query.quantiles(query.of_job("disttrain_push_seconds_bucket")),
            unit="s",
            limits=Limits(warning=0.5, bad=5),
        ),
        Panel(
            title="Time of a fetch",
            means="For the parameters of all shards. Above the time of a step: more shards, or "
            "rarer fetches (fetchEvery). Many seconds: a shard was away.",
            queries=query.quantiles(query.of_job("disttrain_fetch_seconds_bucket")),
            unit="s",
            limits=Limits(warning=0.5, bad=5),
        ),
        Panel(
            title="Bytes moved",
            means="Payload that shards receive and send. Near what the network carries: fewer "
            "pushes and fetches, or more nodes for the shards.",
            queries=(
                Query(_moved("disttrain_push_bytes_total"), "pushed"),
                Query(_moved("disttrain_fetch_bytes_total"), "fetched"),
            ),
            unit="Bps",
        ),
        Panel(
            title="Updates applied by shard",
            means="Per second. All shards should draw the same line: each push goes to all.",
            queries=(
                Query(
                    query.total(query.rate(query.of_job("disttrain_updates_applied_total")), "pod"),
                    "{{pod}}",
                ),
            ),
            unit="ops",
        ),
        Panel(
            title="Time spent applying updates",
            means="Share of each shard's time. Near 100%: the shards are the limit, use more.",
            queries=(
                Query(
                    query.total(query.rate(query.of_job("disttrain_apply_seconds_total")), "pod"),
                    "{{pod}}",
                ),
            ),
            unit="percentunit",
            limits=Limits(warning=0.7, bad=0.9),
        ),
        Panel(
            title="Requests refused by reason",
            means="Counted since each shard started. A start or a restart causes a few of "
            "not_ready, unknown_sender, wrong_receiver and out_of_order, and a replica that counts "
            "as dead old_incarnation. corrupt, malformed, wrong_layout: processes of other "
            "versions or jobs talk to these shards. not_finite: the training diverges. "
            "Pushes that were scaled down to localSteps.maximumNorm are applied, and counted by "
            "each shard.",
            queries=(
                Query(
                    query.total(query.of_job("disttrain_updates_refused_total"), "reason"),
                    "{{reason}}",
                ),
                Query(
                    query.total(query.of_job("disttrain_messages_dropped_total"), "reason"),
                    "dropped: {{reason}}",
                ),
                Query(
                    query.total(query.of_job("disttrain_updates_shortened_total")),
                    "scaled down to maximumNorm",
                ),
            ),
        ),
    ),
)


def _of_each_replica(metric: str) -> Query:
    """At the shard with the most."""
    return Query(query.largest(query.of_job(metric), "replica"), "replica {{replica}}")


def _of_each_shard(metric: str) -> Query:
    """Of the replica with the most."""
    return Query(query.largest(query.of_job(metric), labels.POD), "{{pod}}")


STALENESS: Final = Row(
    "Staleness",
    (
        Panel(
            title="Staleness and its bound",
            means="Updates that a shard applied between a gradient's parameters and the gradient. "
            "Above the bound, which follows from the strategy and the replicas: one replica is "
            "much slower than the others; look at samples per second of each.",
            queries=(
                *query.quantiles(query.of_job(_STALENESS, _OF_SHARDS)),
                Query(query.largest(query.of_job("disttrain_staleness_bound_updates")), "bound"),
            ),
            width=12,
        ),
        Panel(
            title="Staleness in use, by replica",
            means="Mean staleness of each replica's latest pushes, at the shard with the most. A "
            "prediction goes by it. One far above the others is of a slow replica.",
            queries=(_of_each_replica("disttrain_mean_staleness_updates"),),
            width=12,
        ),
        Panel(
            title="Error of the prediction",
            means="With staleness.predict: how far predicted parameters are from those that came, "
            "of the distance without a prediction. Each replica at the shard with the most, and "
            "each shard at its worst replica, since shards hold other layers. Above 1 the "
            "prediction does harm: lower the momentum or the rate.",
            queries=(_of_each_replica(_ERROR), _of_each_shard(_ERROR)),
            width=12,
        ),
        Panel(
            title="Staleness of $shard",
            means="How many updates came with which staleness. A second band far above the first "
            "is a slow replica.",
            queries=(
                Query(
                    query.total(
                        query.increase(
                            query.of_job(_STALENESS, _OF_SHARDS, f'{labels.POD}="$shard"')
                        ),
                        "le",
                    )
                ),
            ),
            kind=Kind.HEAT_MAP,
            width=12,
            repeat="shard",
        ),
    ),
)
