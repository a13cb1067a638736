"""`disttrain evaluate`."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn

from disttrain.checkpoint import export, model_map, stores
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.checkpoint.reading import Checkpoint
from disttrain.cli import checkpoint_folder
from disttrain.cli.checkpoint_folder import Meant
from disttrain.cli.checkpoints import CheckpointPath, VectorName
from disttrain.job import defaults, manifest_file
from disttrain.job.spec import DistTrainJob
from disttrain.launch.run_folder import RunFolder
from disttrain.replica import evaluation, model_tensors, task_calls
from disttrain.replica.evaluation import Sums
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.task import Split

BATCHES_AT_ONCE = 4
"""Batches of training in one forward pass, where the manifest gives no batch size."""


JobPath = Annotated[
    Path | None,
    typer.Option(
        "--job",
        metavar="JOB.yaml",
        help="Manifest whose task is used. Default: that of the run the checkpoint lies in.",
    ),
]


def evaluate(checkpoint: CheckpointPath, job: JobPath = None, vector: VectorName = None) -> None:
    """Evaluate a checkpoint's parameters with the task of its job, on the test split.

    Prints one line per measure, the mean over all samples. The task's module is taken from the
    manifest's folder; the checkpoint must be of the model that this task makes.

    Example: disttrain evaluate runs/digits
    """
    for line in measured(checkpoint, job, vector):
        typer.echo(line)


def measured(checkpoint: str, job_file: Path | None, vector: str | None = None) -> list[str]:
    """Measure a checkpoint; what to print. Raises DistTrainError."""
    with checkpoint_folder.resolved(checkpoint) as meant:
        if job_file is None:
            job, folder = _own_job(checkpoint, meant)
        else:
            job, folder = manifest_file.load_job(job_file), job_file.absolute().parent
        found = stores.verify(meant.path)
        task = task_calls.load(job, folder)
        autocasts = defaults.autocasts(job.spec)
        place = task_calls.resolve_device(job.spec.replicas.device, autocasts=autocasts)
        model = _model(found, task, job, vector).to(place)
        return list(_lines(meant.said, _measure(job, task, model, place)))


def _own_job(given: str, meant: Meant) -> tuple[DistTrainJob, Path]:
    """The job of the run that was given, or that a checkpoint lies in, and its task's folder."""
    for folder in (Path(given), *meant.path.parents):
        run_folder = RunFolder(folder)
        if run_folder.job.exists() and run_folder.record.exists():
            job = manifest_file.load_job(run_folder.job)
            return job, run_folder.read_record().task_folder
    raise NoCheckpoint(
        f"{meant.said} lies in no output folder of `disttrain run`; name its job with --job"
    )


def _model(
    checkpoint: Checkpoint, task: TaskCalls, job: DistTrainJob, vector: str | None
) -> nn.Module:
    model = task.model(job.spec.seed)
    wanted = model_tensors.describe(
        model, defaults.precision(job.spec), frozen=job.spec.task.frozen
    ).with_hash()
    found = model_map.layout(checkpoint.manifest)
    state = checkpoint_folder.coordinator_state(checkpoint.path)
    if state is not None and state.layout is not None:
        # Of frozen parameters that no checkpoint holds, the run has kept the hash.
        found = replace(found, own=state.layout.own)
    model_map.require_same(found, wanted.layout)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        export.write(checkpoint, file, vector)
        model_tensors.load(model, file, job.spec.task.frozen)
    return model


def _measure(job: DistTrainJob, task: TaskCalls, model: nn.Module, place: torch.device) -> Sums:
    settings = job.spec.evaluation
    given = None if settings is None else settings.batch_size
    batch_size = given or BATCHES_AT_ONCE * defaults.samples_per_step(job.spec)
    examples = task.examples(Split.TEST, batch_size=1)
    return evaluation.evaluate(task, model, examples, batch_size, task_calls.mover(place))


def _lines(said: str, sums: Sums) -> Iterator[str]:
    yield f"checkpoint {said}"
    yield f"samples {sums.samples}"
    yield f"loss {sums.mean_loss:.6g}"
    for name, value in sums.measures.items():
        yield f"{name} {value / sums.samples:.6g}"
