"""The operator's metrics. No job's name is in them: a metric per job would grow without bound."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

JOBS: Final = Gauge(
    "disttrain_operator_jobs", "Jobs by phase.", ["phase", "strategy"], registry=REGISTRY
)
QUEUE_DEPTH: Final = Gauge(
    "disttrain_operator_queue_depth", "Jobs that wait to be looked at.", registry=REGISTRY
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
STARTING_SECONDS: Final = Histogram(
    "disttrain_operator_starting_seconds",
    "Seconds from the creation of a job to its first training.",
    buckets=(1, 2, 5, 10, 20, 40, 80, 160, 320, 640),
    registry=REGISTRY,
)
RESTARTS: Final = Counter(
    "disttrain_operator_restarts", "Restarts of processes.", ["role", "reason"], registry=REGISTRY
)
