"""A job of a cluster in the words of the display of `disttrain run`. Pure."""

from collections.abc import Sequence

from disttrain.cli.job_status import BatchMethod, JobStatus, Member
from disttrain.cluster import pods
from disttrain.cluster.following import Look
from disttrain.cluster.interface import Object
from disttrain.cluster.pods import Pod
from disttrain.job.cluster_names import shard_set
from disttrain.job.conditions import ConditionStatus
from disttrain.job.status import SandblasterStatus, TrainingStatus
from disttrain.launcher.completion import Staleness
from disttrain.launcher.supervision import Process, State


def status(look: Look) -> JobStatus | None:
    """What the display shows; None before the operator has written a phase."""
    found = look.status
    if found.phase is None:
        return None
    training = found.training or TrainingStatus()
    why = look.why
    return JobStatus(
        phase=found.phase,
        reason=None if why is None else why.reason,
        message=None if why is None else why.message,
        samples=training.samples or 0,
        steps=training.steps or 0,
        epoch=training.epoch or 0.0,
        samples_per_second=training.samples_per_second or 0.0,
        loss=training.loss,
        progress=(training.progress_percent or 0) / 100,
        remaining_seconds=training.estimated_remaining_seconds,
        has_target="targetMetric" in look.job["spec"].get("stop", {}),
        latest_measures=training.metrics or None,
        object_warning=training.warning,
        sandblaster=_batch_method(found.sandblaster),
        staleness=Staleness(p50=_whole(training.staleness_p50), p99=_whole(training.staleness_p99)),
        limit=_limit(look),
        members=_shards(look),
    )


def _batch_method(found: SandblasterStatus | None) -> BatchMethod | None:
    known = None if found is None else found.model_dump(exclude_none=True)
    return None if known is None else BatchMethod.model_validate(known, by_name=True)


def processes(found: Sequence[Object]) -> list[Process]:
    return [_process(pod) for pod in pods.in_order(list(found))]


def _process(pod: Pod) -> Process:
    state = State.RUNNING if pod.is_running else State.WAITING
    if pod.state in {"Completed", "Succeeded", "Failed", "Terminating"}:
        state = State.ENDED
    return Process(pod.name, state, restarts=pod.restarts)


def _shards(look: Look) -> list[Member]:
    server = look.status.parameter_server
    name = shard_set(look.job["metadata"]["name"])
    shards = () if server is None else server.shards
    return [Member(name=f"{name}-{each.index}", version=each.version) for each in shards]


def _limit(look: Look) -> str:
    """What is missing, while something is."""
    lacking = [
        f"{each.type}: {each.message or each.reason}"
        for each in look.status.conditions
        if each.status is ConditionStatus.FALSE and each.type.endswith("Available")
    ]
    return "; ".join(lacking) if look.ended is None else ""


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
