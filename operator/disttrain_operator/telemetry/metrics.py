"""The operator's metrics. No job's name is in them: a metric per job would grow without bound."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

BUILD_INFO: Final = Gauge(
    "disttrain_operator_build_info",
    "Always 1; the label says which version this operator is.",
    ["version"],
    registry=REGISTRY,
)
JOBS: Final = Gauge(
    "disttrain_operator_jobs",
    "Jobs by namespace and phase.",
    # Prometheus gives the label `namespace` to who is scraped.
    ["job_namespace", "phase", "strategy"],
    registry=REGISTRY,
)
JOBS_ACCEPTED: Final = Counter(
    "disttrain_operator_jobs_accepted",
    "Jobs that got a status for the first time.",
    ["job_namespace"],
    registry=REGISTRY,
)
JOBS_ENDED: Final = Counter(
    "disttrain_operator_jobs_ended",
    "Jobs that ended, by how.",
    ["job_namespace", "phase"],
    registry=REGISTRY,
)
JOB_SECONDS: Final = Histogram(
    "disttrain_operator_job_seconds",
    "Seconds from the creation of a job to its end, suspensions included.",
    ["phase"],
    buckets=(60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400),
    registry=REGISTRY,
)
QUEUE_DEPTH: Final = Gauge(
    "disttrain_operator_queue_depth", "Jobs that are due to be looked at.", registry=REGISTRY
)
QUEUE_WAIT_SECONDS: Final = Gauge(
    "disttrain_operator_queue_wait_seconds",
    "Seconds for which the job that waits longest has been due.",
    registry=REGISTRY,
)
RECONCILE_SECONDS: Final = Histogram(
    "disttrain_operator_reconcile_seconds",
    "Seconds that one look at a job took, with all it led to.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
RECONCILE_ERRORS: Final = Counter(
    "disttrain_operator_reconcile_errors",
    "Looks at a job that failed.",
    ["kind"],
    registry=REGISTRY,
)
API_REQUESTS: Final = Counter(
    "disttrain_operator_api_requests",
    "Requests to the API server.",
    ["verb", "code"],
    registry=REGISTRY,
)
WATCH_ERRORS: Final = Counter(
    "disttrain_operator_watch_errors",
    "Watches that broke or could not begin; each is begun again.",
    ["kind"],
    registry=REGISTRY,
)
LISTS: Final = Counter(
    "disttrain_operator_lists",
    "Lists of all objects of a kind: at the start, and where a watch missed something.",
    ["kind"],
    registry=REGISTRY,
)
STARTING_SECONDS: Final = Histogram(
    "disttrain_operator_starting_seconds",
    "Seconds from the creation of a job to its first training.",
    buckets=(1, 2, 5, 10, 20, 40, 80, 160, 320, 640),
    registry=REGISTRY,
)
RESTARTS: Final = Counter(
    "disttrain_operator_restarts", "Restarts of processes.", ["role", "reason"], registry=REGISTRY
)
