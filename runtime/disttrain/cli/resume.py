"""`disttrain resume`: go on with a run of this machine, or with a job of a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from disttrain.checkpoint import reading
from disttrain.checkpoint.manifest import Manifest
from disttrain.cli import checkpoint_folder, wording
from disttrain.cli.cluster_options import jobs_of, named, on_cluster
from disttrain.cli.manifests import Assignments
from disttrain.cli.run import JoinableAt, go_on
from disttrain.cluster import errors, resources
from disttrain.cluster.interface import Target
from disttrain.coordinator.errors import ManifestChanged
from disttrain.coordinator.journal import resume as resuming
from disttrain.job import manifest_file
from disttrain.job.finding import InvalidManifest
from disttrain.job.spec import DistTrainJob, Spec
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.job.strategy_kind import Precision
from disttrain.job.update_rule import in_manifests
from disttrain.launch.run_folder import RunFolder
from disttrain.state.vector import DOUBLE

Which = Annotated[
    str,
    typer.Argument(
        metavar="DIR|NAME", help="Output folder of a run, or a job of a cluster: NAME, dtj/NAME."
    ),
]

_NO_METHOD = (
    "spec.strategy was sandblaster and is downpour, which has nothing to go on with in the "
    "checkpoint of a batch method. Set sandblaster, or begin a new run"
)


@on_cluster
def resume(
    target: Target,
    which: Which,
    assignments: Assignments = None,
    joinable_at: JoinableAt = None,
) -> None:
    """Go on with the run in the folder DIR from its newest checkpoint, or with a suspended job.

    A folder that exists is a run of this machine, which goes on by the manifest in DIR/job.yaml;
    a damaged checkpoint is refused before anything starts, as is a manifest by which it cannot be
    gone on with, and it exits like `disttrain run`. What --set changes is written into DIR/job.yaml
    once it is accepted. A run that is complete is left as it is, unless its manifest asks for more
    since. A run that others could join is joinable again where it was, or at --joinable-at, by new
    tokens.
    Any other NAME is a job of the cluster, as are dtj/NAME and what is named with --namespace,
    --context or --kubeconfig, whatever folders there are.

    Example: disttrain resume runs/digits-20260131-120000 --set spec.stop.epochs=20

    Example: disttrain resume dtj/digits
    """
    if means_cluster(which, target):
        if joinable_at is not None:
            message = (
                f"--joinable-at: {which} is a job of a cluster, which nobody joins; leave it out"
            )
            raise errors.WrongInput(message)
        if assignments:
            message = (
                f"--set: {which} is a job of a cluster, whose manifest lies there; change it with "
                f"`kubectl edit`, or leave --set out"
            )
            raise errors.WrongInput(message)
        with _said_why(target, which):
            _resume_job(target, which)
        return
    raise typer.Exit(go_on(Path(which), check_checkpoint, joinable_at, assignments or ()))


def means_cluster(which: str, target: Target) -> bool:
    """Whether a job of a cluster is meant, and no folder of this machine."""
    if resources.is_qualified(which) or target != Target():
        return True
    return "/" not in which and not Path(which).is_dir()


@contextmanager
def _said_why(target: Target, which: str) -> Iterator[None]:
    """Tell whoever wrote a folder's name amiss why a cluster is asked."""
    try:
        yield
    except (
        errors.LibraryMissing,
        errors.NoAccess,
        errors.NotFound,
        errors.NotInstalled,
        errors.Unreachable,
    ) as error:
        if resources.is_qualified(which) or target != Target():
            raise
        raise type(error)(
            f"there is no folder {which} here, so a job of a cluster is meant: {error}"
        ) from error


def _resume_job(target: Target, which: str) -> None:
    jobs = jobs_of(target)
    (name,) = jobs.choose([which])
    job = jobs.get(name)
    if not job["spec"].get("suspend"):
        phase = (job.get("status") or {}).get("phase") or "new"
        raise errors.WrongInput(
            f"job {name} is not suspended (it is {phase}); there is nothing to resume"
        )
    jobs.patch(name, {"suspend": False})
    typer.echo(f"{named(name)} resumed")


def check_checkpoint(run: RunFolder, job: DistTrainJob) -> None:
    """Refuse a job by which a run cannot go on, and say from where it goes on.

    Nothing happens when there is no run or no checkpoint. Raises Corrupt when that is damaged,
    ManifestChanged when the run cannot be gone on with by this manifest.
    """
    _require_same_place(run, job)
    checkpoint = checkpoint_folder.require_whole(run.checkpoints(job))
    if checkpoint is None:
        return
    _require_possible(checkpoint, job.spec)
    typer.echo(_from_where(reading.read(checkpoint).manifest, run))


def _require_same_place(run: RunFolder, job: DistTrainJob) -> None:
    """Else it would begin anew, though it has checkpoints."""
    with suppress(InvalidManifest):
        place, before = run.checkpoints(job), run.checkpoints(manifest_file.load_job(run.job))
        if place != before:
            message = (
                f"spec.checkpoint: the run's checkpoints are in {before.uri or before.folder}, got "
                f"{place.uri or place.folder}; leave the place as it is, or bring all of them "
                f"there and write it into {run.job.name}"
            )
            raise ManifestChanged(message)


def _from_where(manifest: Manifest, run: RunFolder) -> str:
    """How far back a run goes: to the checkpoint, from the last sign of its latest incarnation."""
    files = [file for file in (run.status, run.summary) if file.exists()]
    lost = max((file.stat().st_mtime for file in files), default=0) - manifest.created.timestamp()
    ago = f", made {wording.duration(lost)} before the run's end" if lost >= 0 else ""
    return f"goes on from the checkpoint at {wording.count(manifest.samples)} samples{ago}"


def _require_possible(checkpoint: Path, spec: Spec) -> None:
    """Raise ManifestChanged, or say what the manifest changes of a batch method."""
    state = checkpoint_folder.coordinator_state(checkpoint)
    now = spec.strategy.sandblaster
    _refuse(None if state is None else resuming.impossible(state, spec))
    if now is None:
        is_of_method = state is not None and state.batch is not None
        _refuse(_NO_METHOD if is_of_method else _other_optimizer(checkpoint, spec))
    elif state is not None and state.batch is None:
        _refuse(_impossible_in_warm_start(checkpoint, now))
    elif state is not None and state.batch is not None:
        for change in resuming.between(state.batch.rules, now):
            typer.echo(str(change))


def _other_optimizer(checkpoint: Path, spec: Spec) -> str | None:
    """The shards' state is of one optimizer, and no other can go on with it."""
    before = reading.read(checkpoint).manifest.update_rule
    strategy = spec.strategy.rule
    if before == strategy.update_rule:
        return None
    was, now = map(in_manifests, (before, strategy.update_rule))
    return (
        f"{strategy.update_rule_field} was {was} and is {now}, which cannot go on with the "
        f"checkpoint's state. Set {was}, or begin a new run"
    )


def _impossible_in_warm_start(checkpoint: Path, now: Sandblaster) -> str | None:
    manifest = reading.read(checkpoint).manifest
    vectors = {piece.vector for piece in manifest.pieces}
    precision = Precision.FLOAT64 if DOUBLE in vectors else Precision.FLOAT32
    return resuming.impossible_in_warm_start(manifest.update_rule, precision, now)


def _refuse(why: str | None) -> None:
    if why is not None:
        raise ManifestChanged(why)
