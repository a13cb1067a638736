"""The dashboard of one job."""

from typing import Final

from disttrain_monitoring import labels, query
from disttrain_monitoring.one_job_rows import batch, checkpoints, data, parameter_server, training
from disttrain_monitoring.panel import Board, Kind, Limits, Panel, Row, Variable, Worse
from disttrain_monitoring.query import Query

_NOW: Final = Row(
    "Now",
    (
        Panel(
            title="Phase",
            means="Where the job stands. Waiting for long: members are missing, see the job's "
            "conditions. Failed: its condition says why.",
            queries=(
                Query(
                    query.largest(query.of_job("disttrain_job_phase"), "phase") + " == 1",
                    "{{phase}}",
                ),
            ),
            kind=Kind.NAME,
            width=4,
        ),
        Panel(
            title="Done",
            means="Of the stop rule that will be met first. A target measure is no part of it.",
            queries=(Query(query.largest(query.of_job("disttrain_progress_ratio"))),),
            unit="percentunit",
            kind=Kind.NUMBER,
            width=3,
        ),
        Panel(
            title="Time left",
            means="Until the stop rule, at the present speed; 0 while nothing is known. Growing: "
            "the job becomes slower, see samples per second.",
            queries=(Query(query.largest(query.of_job("disttrain_remaining_seconds"))),),
            unit="s",
            kind=Kind.NUMBER,
            width=3,
        ),
        Panel(
            title="Shards missing",
            means="Shards that the job asks for and the coordinator does not hear. Training waits "
            "for them. More than a minute: kubectl describe the shard's pod.",
            queries=(
                Query(
                    query.largest(query.of_job("disttrain_shards_wanted"))
                    + " - "
                    + query.largest(query.of_job("disttrain_members", 'role="shard"'))
                ),
            ),
            kind=Kind.NUMBER,
            limits=Limits(warning=1, bad=2),
            width=3,
        ),
        Panel(
            title="Replicas that train",
            means="Replicas that the coordinator hears. None: nothing is trained; see the pods "
            "of the Deployment.",
            queries=(Query(query.largest(query.of_job("disttrain_members", 'role="replica"'))),),
            kind=Kind.NUMBER,
            limits=Limits(warning=1, bad=1, worse=Worse.BELOW),
            width=3,
        ),
        Panel(
            title="Age of the checkpoint",
            means="Training that the death of a shard would cost. Above a few intervals of the "
            "manifest: checkpoints fail, see the row Checkpoints.",
            queries=(
                Query(
                    "time() - "
                    + query.largest(query.of_job("disttrain_job_checkpoint_timestamp_seconds"))
                ),
            ),
            unit="s",
            kind=Kind.NUMBER,
            limits=Limits(warning=300, bad=1800),
            width=4,
        ),
        Panel(
            title="Updates at risk",
            means="Updates that are acknowledged and in no checkpoint: what would be lost with "
            "all shards at once. It falls to zero with each checkpoint.",
            queries=(Query(query.total(query.of_job("disttrain_updates_at_risk"))),),
            kind=Kind.NUMBER,
            width=4,
        ),
    ),
)

_PODS: Final = Row(
    "Pods",
    (
        Panel(
            title="Pods up by role",
            means="Pods whose metrics can be read. Fewer than the manifest asks for: describe the "
            "pods that are missing; pods that are up and do not train hang.",
            queries=(Query(query.total(query.of_job("up"), labels.COMPONENT), "{{component}}"),),
            width=12,
        ),
        Panel(
            title="Restarts by role",
            means="Incarnations after the first, as the coordinator counts them. Again and again: "
            "status.failures of the job keeps the last words of the dead.",
            queries=(
                Query(
                    query.total(query.increase(query.of_job("disttrain_restarts_total")), "role"),
                    "{{role}}",
                ),
            ),
            limits=Limits(warning=1, bad=3),
            width=12,
        ),
    ),
)

ONE_JOB: Final = Board(
    identity="disttrain-job",
    title="DistTrain / one job",
    means="One job, from its own processes. Every panel says in its description what to do.",
    rows=(
        _NOW,
        training.ROW,
        parameter_server.ROW,
        parameter_server.STALENESS,
        checkpoints.ROW,
        data.ROW,
        batch.ROW,
        _PODS,
    ),
    variables=(
        Variable(name="namespace", series="disttrain_job_phase", label=labels.NAMESPACE),
        Variable(
            name="job",
            series=f'disttrain_job_phase{{{labels.NAMESPACE}="$namespace"}}',
            label=labels.JOB,
        ),
        Variable(
            name="shard",
            series=query.of_job("disttrain_shard_version"),
            label=labels.POD,
            is_chosen=False,
        ),
    ),
)
