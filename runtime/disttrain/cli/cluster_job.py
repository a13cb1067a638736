"""How one job of a cluster is: `disttrain get` and `top`."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

import typer

from disttrain.cli import cluster_options, wording
from disttrain.cli.cluster_options import (
    JobName,
    Output,
    OutputOption,
    Watching,
    job_name,
    jobs_of,
    object_text,
    on_cluster,
)
from disttrain.cli.table import later
from disttrain.cluster import following, pods
from disttrain.cluster.following import Observation
from disttrain.cluster.interface import Object, Target
from disttrain.cluster.jobs import Jobs, files_of
from disttrain.cluster.kubectl_text import age, now, printable, table
from disttrain.cluster.pods import Pod
from disttrain.job.roles import Replicas
from disttrain.job.status import (
    Failure,
    JobStatus,
    SandblasterStatus,
    ShardStatus,
    TrainingStatus,
)
from disttrain.job.status_section import Condition, ConditionStatus

PODS_SHOWN: Final = 50
LOG_LINES: Final = 8
"""Of the end of the log of a process that died."""
FAILURES_SHOWN: Final = 3


@on_cluster
def get(
    target: Target, name: JobName, *, output: OutputOption = None, watch: Watching = False
) -> None:
    """Show how a job is and why: conditions, progress, shards, replicas, failures, checkpoint.

    With --watch it shows the progress until the job ends, and exits like `disttrain run`.

    Example: disttrain get digits

    Example: disttrain get dtj/digits -n research --watch
    """
    chosen = job_name(name)
    jobs = jobs_of(target)
    job = jobs.get(chosen)
    if watch:
        raise typer.Exit(cluster_options.follow(jobs, job))
    if output in {None, Output.WIDE}:
        typer.echo(page(job, jobs.visible_pods(job), now()))
    else:
        typer.echo(object_text([job], Output(output)))


@on_cluster
def top(target: Target, name: JobName) -> None:
    """Show per pod samples per second, staleness of gradients, processor time and memory.

    Samples per second are measured over two seconds.

    Example: disttrain top digits
    """
    chosen = job_name(name)
    jobs = jobs_of(target)
    measure: Callable[[Jobs, Object], tuple[str, Sequence[str]]] = later("use of resources")
    shown, notes = measure(jobs, jobs.get(chosen))
    typer.echo(shown)
    for note in notes:
        typer.echo(note, err=True)


def page(job: Object, found: Sequence[Object], now: datetime) -> str:
    seen = following.observe(job, now)
    status = seen.status
    members = pods.in_order(list(found))
    blocks = (
        _head(job, status, now),
        _hint(seen),
        _block("Conditions", _conditions(status, now)),
        _block("Shards", _shards(status)),
        _block("Pods", _pods(members, now)),
        _failures(status, now),
    )
    return "\n\n".join(block for block in blocks if block)


def _head(job: Object, status: JobStatus, now: datetime) -> str:
    metadata, spec = job["metadata"], job["spec"]
    counts = f"{status.ready_replicas or 0} joined of {_wanted(spec, 'replicas', 'count')} wanted"
    if (processes := _of_several(spec.get("replicas") or {})) != 1:
        counts += f", each of {processes} processes"
    facts = [
        ("Name", metadata["name"]),
        ("Namespace", metadata["namespace"]),
        ("Phase", status.phase or "<unknown>"),
        ("Age", age(metadata.get("creationTimestamp"), now)),
        ("Task", spec["task"]["entrypoint"]),
        ("Strategy", status.strategy or next(iter(spec["strategy"]), "")),
        *_training(status.training, status.sandblaster),
        ("Replicas", counts),
        ("Restarts", _restarts(status)),
        ("Data", wording.data(status.data)),
        ("Checkpoint", _checkpoint(status, now)),
        ("Files", files_of(job)),
    ]
    width = max(len(name) for name, _ in facts) + 1
    shown = ((name, printable(value)) for name, value in facts if value)
    return "\n".join(f"{name + ':':<{width}}  {value}" for name, value in shown)


def _training(
    training: TrainingStatus | None, method: SandblasterStatus | None
) -> list[tuple[str, str]]:
    found = training or TrainingStatus()
    left = found.estimated_remaining_seconds
    progress = (
        wording.known(found.progress_percent, "{}%"),
        wording.known(found.epoch, "epoch {:.2f}"),
        wording.known(found.samples, "{:,} samples"),
        "" if left is None else f"{wording.duration(left)} left",
    )
    loss = wording.known(found.loss, "loss {:.4g}" if method is None else "objective {:.4g}")
    speed = wording.known(found.samples_per_second, "{:,.0f} samples/s")
    staleness = wording.staleness(found.staleness_p50, found.staleness_p99)
    missed = wording.prediction_error(found.prediction_error)
    return [
        ("Progress", wording.listed(progress)),
        ("Method", wording.listed([wording.batch_method(method), wording.batch_work(method)])),
        ("Warning", wording.listed([_warning(method), _warning(found)], "; ")),
        ("Measures", wording.listed([loss, wording.evaluated(found)])),
        ("Speed", wording.listed([speed, staleness, missed])),
    ]


def _warning(part: TrainingStatus | SandblasterStatus | None) -> str:
    return "" if part is None else part.warning or ""


def _restarts(status: JobStatus) -> str:
    counts = {} if status.restarts is None else status.restarts.model_dump()
    return wording.listed(f"{role} {count}" for role, count in counts.items() if count)


def _wanted(spec: Object, part: str, field: str) -> object:
    return (spec.get(part) or {}).get(field, 1)


def _of_several(replicas: Object) -> int:
    """Processes of each replica."""
    given = {name: replicas[name] for name in ("partitions", "grid", "ranks") if name in replicas}
    return Replicas.model_validate(given).processes


def _hint(seen: Observation) -> str:
    if seen.is_overlooked:
        return f"Note: {following.NO_OPERATOR}"
    observed = seen.status.observed_generation
    if observed is not None and seen.job["metadata"].get("generation") != observed:
        return "Note: the operator has not acted on the latest change of the spec yet."
    return ""


def _checkpoint(status: JobStatus, now: datetime) -> str:
    latest = status.checkpoint
    if latest is None:
        return ""
    samples = "" if latest.samples is None else f", after {latest.samples:,} samples"
    return f"{latest.path}, {age(latest.time, now)} ago{samples}"


def _conditions(status: JobStatus, now: datetime) -> list[list[str]]:
    if not status.conditions:
        return []
    # Long messages: they stand last, whole, where a table does not suffer from them.
    rows = [_condition(each, now) for each in sorted(status.conditions, key=_by_weight)]
    return [["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"], *rows]


def _by_weight(condition: Condition) -> tuple[bool, str]:
    return condition.status is not ConditionStatus.TRUE, condition.type


def _condition(condition: Condition, now: datetime) -> list[str]:
    since = age(condition.last_transition_time, now)
    values = (condition.type, condition.status.value, since, condition.reason, condition.message)
    return [printable(value) if value else "" for value in values]


def _shards(status: JobStatus) -> list[list[str]]:
    server = status.parameter_server
    if server is None or not server.shards:
        return []
    head = ["SHARD", "VERSION", "IN CHECKPOINT", "AT RISK", "STALENESS P50/P99"]
    return [head, *map(_shard, server.shards)]


def _shard(shard: ShardStatus) -> list[str]:
    numbers = (shard.version, shard.checkpoint_version, shard.updates_at_risk)
    stale = wording.quantiles(shard.staleness_p50, shard.staleness_p99)
    return [str(shard.index), *("" if each is None else f"{each:,}" for each in numbers), stale]


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
    values = (pod.name, ready, pod.state, str(pod.restarts), age(pod.created, now), pod.node)
    return [printable(value) for value in values]


def _block(title: str, rows: Sequence[Sequence[str]]) -> str:
    return "" if not rows else f"{title}:\n" + _indented(table(rows))


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
    yield _indented(printable(f"{age(failure.time, now)} ago  {failure.pod}:{reason}{code}"))
    for line in failure.log_tail.splitlines()[-LOG_LINES:]:
        yield f"    | {printable(line)}"


def _indented(block: str) -> str:
    return "\n".join(f"  {line}" for line in block.splitlines())
