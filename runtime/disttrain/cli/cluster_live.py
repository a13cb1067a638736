"""Follows a job of a cluster to its end with the display of `disttrain run`."""

import contextlib
import time
from collections.abc import Sequence

import typer

from disttrain.cli.live import display
from disttrain.cluster import following, jobs, kubectl_text, pods
from disttrain.cluster.errors import NotFound, Unreachable
from disttrain.cluster.following import Observation
from disttrain.cluster.informer import Informer
from disttrain.cluster.interface import Object
from disttrain.cluster.jobs import Jobs, selector_of_pods
from disttrain.cluster.pods import Pod
from disttrain.cluster.resources import PODS
from disttrain.job.cluster_names import shard_set
from disttrain.job.run_status import Member, RunStatus
from disttrain.job.status import Phase, TrainingStatus
from disttrain.job.status_section import ConditionStatus
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher.supervision import Process, State


def status_of(seen: Observation) -> RunStatus | None:
    """What the display shows; None before the operator has written a phase."""
    found, why = seen.status, seen.why
    if found.phase is None:
        return None
    return RunStatus(
        phase=found.phase,
        reason=None if why is None else why.reason,
        message=None if why is None else why.message,
        training=found.training or TrainingStatus(),
        sandblaster=found.sandblaster,
        has_target="targetMetric" in seen.job["spec"].get("stop", {}),
        limit=_limit(seen),
        members=_shards(seen),
    )


def processes(found: Sequence[Object]) -> list[Process]:
    return [_process(pod) for pod in pods.in_order(list(found))]


def _process(pod: Pod) -> Process:
    state = State.RUNNING if pod.is_running else State.WAITING
    if pod.state in {"Completed", "Succeeded", "Failed", "Terminating"}:
        state = State.ENDED
    return Process(pod.name, state, restarts=pod.restarts)


def _shards(seen: Observation) -> tuple[Member, ...]:
    server = seen.status.parameter_server
    name = shard_set(seen.job["metadata"]["name"])
    shards = () if server is None else server.shards
    return tuple(Member(name=f"{name}-{each.index}", version=each.version) for each in shards)


def _limit(seen: Observation) -> str:
    lacking = [
        f"{each.type}: {each.message or each.reason}"
        for each in seen.status.conditions
        if each.status is ConditionStatus.FALSE and each.type.endswith("Available")
    ]
    return "; ".join(lacking) if seen.ended is None else ""


POLL_SECONDS = 1.0
"""A status changes every ten seconds at most, phases and pods at any time."""


def follow(jobs: Jobs, job: Object) -> ExitCode:
    """Show the job until it ends; the exit code of the command. Ctrl-C leaves the job alone."""
    name = job["metadata"]["name"]
    try:
        with Informer(jobs.api, PODS, jobs.namespace, selector_of_pods(job)) as pods:
            ended = _watch(jobs, job, pods)
    except NotFound as error:
        typer.echo(f"Failed (Deleted): {error}", err=True)
        return ExitCode.FAILED
    except KeyboardInterrupt:
        again = f"disttrain get {name} -n {jobs.namespace} --watch"
        typer.echo(f"{name} goes on without you; watch it again with: {again}")
        return ExitCode.INTERRUPTED
    return _conclude(ended)


def _watch(jobs: Jobs, job: Object, pods: Informer) -> Observation:
    """Read the job once a second, by one small request, until it has ended.

    Raises NotFound when it is gone, or another has its name.
    """
    before: Observation | None = None
    latest = following.observe(job, kubectl_text.now())
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    with display(lambda: status_of(latest)) as shown:
        while True:
            # The API server may be away for a while; training is not.
            with contextlib.suppress(Unreachable):
                latest = following.observe(jobs.again(name, uid), kubectl_text.now())
            for line in following.news(before, latest):
                shown.event(line)
            shown.tick(processes(pods.objects()))
            if latest.ended is not None:
                return latest
            before = latest
            time.sleep(POLL_SECONDS)


def _conclude(seen: Observation) -> ExitCode:
    why = seen.why
    name = seen.job["metadata"]["name"]
    message = kubectl_text.printable(why.message) if why is not None and why.message else ""
    reason = "unknown" if why is None else kubectl_text.printable(why.reason)
    if seen.ended is Phase.COMPLETE:
        typer.echo(f"Complete ({reason}): {message or name}")
        typer.echo(f"The model is model.safetensors in {jobs.files_of(seen.job)}")
        return ExitCode.COMPLETE
    typer.echo(f"Failed ({reason}): {message}", err=True)
    typer.echo(f"More: disttrain get {name}; disttrain logs {name}", err=True)
    return ExitCode.FAILED
