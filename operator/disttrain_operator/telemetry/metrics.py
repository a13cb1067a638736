"""The operator's metrics. No job's name is in them: a metric per job would grow without bound."""

from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
_COUNTER: Final = partial(Counter, registry=REGISTRY)
_GAUGE: Final = partial(Gauge, registry=REGISTRY)
_HISTOGRAM: Final = partial(Histogram, registry=REGISTRY)

BUILD_INFO: Final = _GAUGE(
    "disttrain_operator_build_info",
    "Always 1; the label says which version this operator is.",
    ["version"],
)
JOBS: Final = _GAUGE(
    "disttrain_operator_jobs",
    "Jobs by namespace and phase.",
    # Prometheus gives the label `namespace` to who is scraped.
    ["job_namespace", "phase", "strategy"],
)
JOBS_ACCEPTED: Final = _COUNTER(
    "disttrain_operator_jobs_accepted",
    "Jobs that got a status for the first time.",
    ["job_namespace"],
)
JOBS_ENDED: Final = _COUNTER(
    "disttrain_operator_jobs_ended",
    "Jobs that ended, by how.",
    ["job_namespace", "phase"],
)
JOB_SECONDS: Final = _HISTOGRAM(
    "disttrain_operator_job_seconds",
    "Seconds from the creation of a job to its end, suspensions included.",
    ["phase"],
    buckets=(60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400),
)
QUEUE_DEPTH: Final = _GAUGE("disttrain_operator_queue_depth", "Jobs that are due to be looked at.")
QUEUE_WAIT_SECONDS: Final = _GAUGE(
    "disttrain_operator_queue_wait_seconds",
    "Seconds for which the job that waits longest has been due.",
)
RECONCILE_SECONDS: Final = _HISTOGRAM(
    "disttrain_operator_reconcile_seconds",
    "Seconds that one look at a job took, with all it led to.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
RECONCILE_ERRORS: Final = _COUNTER(
    "disttrain_operator_reconcile_errors",
    "Looks at a job that failed.",
    ["kind"],
)
API_REQUESTS: Final = _COUNTER(
    "disttrain_operator_api_requests",
    "Requests to the API server.",
    ["verb", "code"],
)
WATCH_ERRORS: Final = _COUNTER(
    "disttrain_operator_watch_errors",
    "Watches that broke or could not begin; each is begun again.",
    ["kind"],
)
LISTS: Final = _COUNTER(
    "disttrain_operator_lists",
    "Lists of all objects of a kind: at the start, and where a watch missed something.",
    ["kind"],
)
CERTIFICATES_SIGNED: Final = _COUNTER(
    "disttrain_operator_certificates_signed",
    "Certificates that processes of jobs got.",
    ["role"],
)
CERTIFICATES_REFUSED: Final = _COUNTER(
    "disttrain_operator_certificates_refused",
    "Requests for certificates that were refused; a pod that is not known yet asks again.",
    ["reason"],
)
STARTING_SECONDS: Final = _HISTOGRAM(
    "disttrain_operator_starting_seconds",
    "Seconds from the creation of a job to its first training.",
    buckets=(1, 2, 5, 10, 20, 40, 80, 160, 320, 640),
)
RESTARTS: Final = _COUNTER(
    "disttrain_operator_restarts", "Restarts of processes.", ["role", "reason"]
)
