"""The dashboard of all jobs and of the operator."""

from typing import Final

from disttrain_monitoring import labels, query
from disttrain_monitoring.one_job import ONE_JOB
from disttrain_monitoring.panel import Board, Kind, Limits, Panel, Row
from disttrain_monitoring.query import Query

_EACH: Final = (labels.NAMESPACE, labels.JOB)
_JOB: Final = "{{namespace}}/{{disttrain_job}}"
_OPEN: Final = (
    f"/d/{ONE_JOB.identity}?var-namespace=${{__field.labels.{labels.NAMESPACE}}}"
    f"&var-job=${{__field.labels.{labels.JOB}}}&${{__url_time_range}}"
)

_OURS: Final = f" and on ({labels.NAMESPACE}, {labels.POD}) disttrain_operator_queue_depth"
"""Operators of other programs may be called so, too."""

# Other programs have coordinators and replicas, too.
_UP: Final = (
    f'(up{{{labels.COMPONENT}=~"coordinator|shard|replica", {labels.JOB}!=""}} '
    f"or {query.of_operator('up')})"
)
# Of a role whose pods all answer it is zero, not absent.
_SILENT: Final = query.total(f"1 - {_UP}", labels.COMPONENT)

_JOBS: Final = Row(
    "Jobs",
    (
        Panel(
            title="Jobs by phase",
            means="All jobs that the operator knows. Many Pending: the cluster is full, or images, "
            "quotas or volumes fail; the conditions of one of them name the cause. Failed: its "
            "condition Failed says why.",
            queries=(Query(query.total("disttrain_operator_jobs", "phase"), "{{phase}}"),),
            kind=Kind.STACK,
        ),
        Panel(
            title="Jobs by strategy",
            means="How the replicas of the jobs work together. Nothing here is good or bad.",
            queries=(Query(query.total("disttrain_operator_jobs", "strategy"), "{{strategy}}"),),
            kind=Kind.STACK,
        ),
        Panel(
            title="Jobs by namespace",
            means="Who has how many jobs, those that have ended among them. A namespace that grows "
            "without end makes jobs that nobody deletes: spec.ttlSecondsAfterFinished does.",
            queries=(
                Query(query.total("disttrain_operator_jobs", "job_namespace"), "{{job_namespace}}"),
            ),
            kind=Kind.STACK,
        ),
        Panel(
            title="Jobs that ended",
            means="By namespace and how, counted since the operator started. Failed that rises in "
            "one namespace: its jobs' conditions say why; in all: look at nodes and storage.",
            queries=(
                Query(
                    query.total("disttrain_operator_jobs_ended_total", "job_namespace", "phase"),
                    "{{job_namespace}} {{phase}}",
                ),
            ),
        ),
        Panel(
            title="From created to ended",
            means="Seconds that jobs took as a whole, suspensions included, by how they ended. "
            "Failed after minutes: manifests or images; after hours: look at failures.",
            queries=query.quantiles("disttrain_operator_job_seconds_bucket", "phase"),
            unit="s",
        ),
        Panel(
            title="From created to training",
            means="Seconds from the creation of a job to its first training. Over a minute: look "
            "for images that are pulled anew, for pods that wait for a node, for slow volumes.",
            queries=query.quantiles("disttrain_operator_starting_seconds_bucket"),
            unit="s",
            limits=Limits(warning=60, bad=300),
        ),
        Panel(
            title="Samples per second of each job",
            means="What the coordinators measure. A line at zero: that job is stuck or evaluates; "
            "click on it to open it in the dashboard of one job.",
            queries=(Query(query.total("disttrain_samples_per_second", *_EACH), _JOB),),
            width=12,
            leads_to=_OPEN,
        ),
        Panel(
            title="Age of each job's last checkpoint",
            means="Training that would be lost with a shard. It should fall back to zero at each "
            "interval of the job; a line that only rises has checkpoints that fail: look at the "
            "volume and at the coordinator's log.",
            queries=(
                Query(
                    "time() - "
                    + query.largest("disttrain_job_checkpoint_timestamp_seconds", *_EACH),
                    _JOB,
                ),
            ),
            unit="s",
            width=12,
            leads_to=_OPEN,
        ),
    ),
)

_RESTARTS: Final = Row(
    "Restarts",
    (
        Panel(
            title="Restarts by role and reason",
            means="Processes of all jobs that died, counted since the operator started. OOMKilled: "
            "raise the memory limit of that role. Evicted or DisruptionTarget: nodes are drained, "
            "nothing to do. Error: the log of the job, kept in status.failures.",
            # Not as an increase: that hides the first of each reason.
            queries=(
                Query(
                    query.total("disttrain_operator_restarts_total", "role", "reason"),
                    "{{role}} {{reason}}",
                ),
            ),
            width=12,
        ),
        Panel(
            title="Pods that do not answer",
            means="Scrapes that fail, by role. Pods that start or end show up for a moment; for "
            "longer, the process hangs or a NetworkPolicy keeps Prometheus out.",
            queries=(Query(_SILENT, "{{component}}"),),
            limits=Limits(warning=1, bad=3),
            width=12,
        ),
    ),
)

_OPERATOR: Final = Row(
    "The operator",
    (
        Panel(
            title="Time of one look at a job",
            means="From taking a job out of the queue to its status being written. Seconds: the "
            "API server is slow or throttles; see its requests below.",
            queries=query.quantiles("disttrain_operator_reconcile_seconds_bucket"),
            unit="s",
            limits=Limits(warning=1, bad=10),
        ),
        Panel(
            title="Looks at jobs",
            means="How many per second. A high rate with no change of jobs: something changes the "
            "children of a job again and again.",
            queries=(
                Query(
                    query.total(query.rate("disttrain_operator_reconcile_seconds_count")), "looks"
                ),
            ),
            unit="ops",
        ),
        Panel(
            title="Errors by kind",
            means="Looks at jobs that failed and are tried again, counted since the operator "
            "started. A line that rises: the operator's log names the job and the cause, the "
            "job's condition ReconcileError too.",
            queries=(
                Query(query.total("disttrain_operator_reconcile_errors_total", "kind"), "{{kind}}"),
            ),
        ),
        Panel(
            title="Jobs in the queue",
            means="Jobs that are due to be looked at. Rising without end: the operator is too slow "
            "or the API server is; give it more CPU.",
            queries=(Query(query.largest("disttrain_operator_queue_depth", "pod"), "{{pod}}"),),
        ),
        Panel(
            title="Longest wait in the queue",
            means="Seconds for which some job has been due. Over a minute: suspensions and ends "
            "are late for everybody; see the time of one look.",
            queries=(
                Query(query.largest("disttrain_operator_queue_wait_seconds", "pod"), "{{pod}}"),
            ),
            unit="s",
            limits=Limits(warning=10, bad=60),
        ),
        Panel(
            title="Watches that broke, and lists",
            means="Counted since the operator started. Broken watches that rise with lists of the "
            "same kind: the API server ends them, or is restarted again and again.",
            queries=(
                Query(
                    query.total("disttrain_operator_watch_errors_total", "kind"), "{{kind}} broke"
                ),
                Query(query.total("disttrain_operator_lists_total", "kind"), "{{kind}} lists"),
            ),
        ),
        Panel(
            title="Version of the operator",
            means="Which version looks after jobs. Two: an upgrade is going on, or two operators "
            "share the namespaces.",
            queries=(
                Query(query.total("disttrain_operator_build_info", "version"), "{{version}}"),
            ),
            kind=Kind.NAME,
        ),
        Panel(
            title="Requests to the API server",
            means="Per second, by verb and answer. Codes of 429 and 5xx: the API server throttles "
            "or is ill; 403: the operator lacks a right, upgrade the chart.",
            queries=(
                Query(
                    query.total(
                        query.rate("disttrain_operator_api_requests_total"), "verb", "code"
                    ),
                    "{{verb}} {{code}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Memory of the operator",
            means="Resident bytes. Near the limit of the chart's resources it is killed and starts "
            "again; jobs train on meanwhile. Raise the limit.",
            queries=(Query(query.of_operator("process_resident_memory_bytes") + _OURS, "{{pod}}"),),
            unit="bytes",
        ),
        Panel(
            title="CPU of the operator",
            means="Cores in use. Near the limit it is slow to answer changes: raise the limit, and "
            "look which jobs change so often.",
            queries=(
                Query(
                    query.rate(query.of_operator("process_cpu_seconds_total")) + _OURS, "{{pod}}"
                ),
            ),
            limits=Limits(warning=1, bad=2),
        ),
    ),
)

FLEET: Final = Board(
    identity="disttrain-fleet",
    title="DistTrain / all jobs",
    means="All jobs and the operator. Every panel says in its description what to do.",
    rows=(_JOBS, _RESTARTS, _OPERATOR),
)
