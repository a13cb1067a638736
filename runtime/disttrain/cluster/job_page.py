"""One job on a page: what `disttrain get NAME` prints. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from disttrain.cluster import ages, figures, jobs, pods, tables
from disttrain.cluster.errors import ClusterError
from disttrain.cluster.interface import Object
from disttrain.cluster.pods import Pod
from disttrain.job.conditions import Condition, ConditionStatus
from disttrain.job.status import Failure, JobStatus, ShardStatus

NO_OPERATOR_SECONDS: Final = 10.0
"""After which a job without a status has probably no operator."""

PODS_SHOWN: Final = 50
LOG_LINES: Final = 8
"""Of the end of the log of a process that died."""
FAILURES_SHOWN: Final = 3

NO_OPERATOR: Final = (
    "no operator has looked at this job: is one running (kubectl get deployments -A "
    "-l app.kubernetes.io/name=disttrain-operator), and does it watch this namespace "
    "(its chart's watchNamespaces)?"
)


def status_of(job: Object) -> JobStatus:
    """The status of a job's object; empty before the operator has written one.

    Raises ClusterError for words that this release does not know.
    """
    try:
        return JobStatus.model_validate(job.get("status") or {})
    except ValidationError as error:
        name, place = job["metadata"]["name"], ".".join(map(str, error.errors()[0]["loc"]))
        message = (
            f"status.{place} of job {name} is not as this release knows it; install the operator's "
            f"release of disttrain, or see `disttrain get {name} -o yaml`"
        )
        raise ClusterError(message) from error


def text(job: Object, found: Sequence[Object], now: datetime) -> str:
    status = status_of(job)
    members = pods.in_order(list(found))
    blocks = (
        _head(job, status, now),
        _hint(job, status, now),
        _block("Conditions", _conditions(status, now)),
        _block("Shards", _shards(status)),
        _block("Pods", _pods(members, now)),
        _failures(status, now),
    )
    return "\n\n".join(block for block in blocks if block)


def is_overlooked(job: Object, now: datetime) -> bool:
    """Whether no operator has looked at a job, for longer than one would need."""
    if job.get("status"):
        return False
    return ages.seconds_since(job["metadata"]["creationTimestamp"], now) > NO_OPERATOR_SECONDS


def _head(job: Object, status: JobStatus, now: datetime) -> str:
    metadata, spec = job["metadata"], job["spec"]
    counts = f"{status.ready_replicas or 0} joined of {_wanted(spec, 'replicas', 'count')} wanted"
    facts = [
        ("Name", metadata["name"]),
        ("Namespace", metadata["namespace"]),
        ("Phase", status.phase or "<unknown>"),
        ("Age", ages.since(metadata.get("creationTimestamp"), now)),
        ("Task", spec["task"]["entrypoint"]),
        ("Strategy", status.strategy or next(iter(spec["strategy"]), "")),
        ("Progress", figures.progress(status)),
        ("Method", figures.batch_method(status)),
        ("Warning", figures.warning(status)),
        ("Measures", figures.measures(status)),
        ("Speed", figures.speed(status)),
        ("Replicas", counts),
        ("Restarts", figures.restarts(status)),
        ("Data", figures.data(status)),
        ("Checkpoint", _checkpoint(status, now)),
        ("Files", jobs.files_of(job)),
    ]
    width = max(len(name) for name, _ in facts) + 1
    shown = ((name, tables.printable(value)) for name, value in facts if value)
    return "\n".join(f"{name + ':':<{width}}  {value}" for name, value in shown)


def _wanted(spec: Object, part: str, field: str) -> object:
    return (spec.get(part) or {}).get(field, 1)


def _hint(job: Object, status: JobStatus, now: datetime) -> str:
    if is_overlooked(job, now):
        return f"Note: {NO_OPERATOR}"
    generation = job["metadata"].get("generation")
    if status.observed_generation is not None and generation != status.observed_generation:
        return "Note: the operator has not acted on the latest change of the spec yet."
    return ""


def _checkpoint(status: JobStatus, now: datetime) -> str:
    latest = status.checkpoint
    if latest is None:
        return ""
    samples = "" if latest.samples is None else f", after {latest.samples:,} samples"
    return f"{latest.path}, {ages.since(latest.time, now)} ago{samples}"


def _conditions(status: JobStatus, now: datetime) -> list[list[str]]:
    if not status.conditions:
        return []
    # Long messages: they stand last, whole, where a table does not suffer from them.
    rows = [_condition(each, now) for each in sorted(status.conditions, key=_by_weight)]
    return [["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"], *rows]


def _by_weight(condition: Condition) -> tuple[bool, str]:
    return condition.status is not ConditionStatus.TRUE, condition.type


def _condition(condition: Condition, now: datetime) -> list[str]:
    since = ages.since(condition.last_transition_time, now)
    values = (condition.type, condition.status.value, since, condition.reason, condition.message)
    return [tables.printable(value) if value else "" for value in values]


def _shards(status: JobStatus) -> list[list[str]]:
    server = status.parameter_server
    if server is None or not server.shards:
        return []
    head = ["SHARD", "VERSION", "IN CHECKPOINT", "AT RISK"]
    return [head, *map(_shard, server.shards)]


def _shard(shard: ShardStatus) -> list[str]:
    numbers = (shard.version, shard.checkpoint_version, shard.updates_at_risk)
    return [str(shard.index), *("" if each is None else f"{each:,}" for each in numbers)]


def _pods(members: Sequence[Pod], now: datetime) -> list[list[str]]:
    if not members:
        return []
    head = ["POD", "READY", "STATUS", "RESTARTS", "AGE", "NODE"]
    rows = [_pod(each, now) for each in members[:PODS_SHOWN]]
    if len(members) > PODS_SHOWN:
        rows.append([f"and {len(members) - PODS_SHOWN} more", *[""] * (len(head) - 1)])
    return [head, *rows]


def _pod(pod: Pod, now: datetime) -> list[str]:
    ready = "yes" if pod.is_ready else "no"
    values = (pod.name, ready, pod.state, str(pod.restarts), ages.since(pod.created, now), pod.node)
    return [tables.printable(value) for value in values]


def _block(title: str, rows: Sequence[Sequence[str]]) -> str:
    return "" if not rows else f"{title}:\n" + _indented(tables.text(rows))


def _failures(status: JobStatus, now: datetime) -> str:
    latest = status.failures[-FAILURES_SHOWN:]
    if not latest:
        return ""
    left = len(status.failures) - len(latest)
    title = "Failures, the newest last" + (f" (and {left} before)" if left else "") + ":"
    return "\n".join([title, *(line for each in latest for line in _failure(each, now))])


def _failure(failure: Failure, now: datetime) -> Iterator[str]:
    code = "" if failure.exit_code is None else f" exit code {failure.exit_code}"
    reason = f" {failure.reason}" if failure.reason else ""
    yield _indented(
        tables.printable(f"{ages.since(failure.time, now)} ago  {failure.pod}:{reason}{code}")
    )
    for line in failure.log_tail.splitlines()[-LOG_LINES:]:
        yield f"    | {tables.printable(line)}"


def _indented(block: str) -> str:
    return "\n".join(f"  {line}" for line in block.splitlines())
