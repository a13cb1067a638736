"""`disttrain evaluate`."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from torch import nn

from disttrain.checkpoint import export, model_map, stores
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.checkpoint.reading import Checkpoint
from disttrain.cli import checkpoint_folder, grids
from disttrain.cli.checkpoint_folder import Meant
from disttrain.cli.checkpoints import CheckpointPath, VectorName
from disttrain.cli.divided_evaluation import DividedEvaluation, divided_as, measure_divided
from disttrain.job import defaults, manifest_file
from disttrain.job.roles import MOST_PARTITIONS, Replicas
from disttrain.job.spec import DistTrainJob
from disttrain.launch.run_folder import RunFolder, task_folder_of
from disttrain.replica import division, evaluation, model_tensors, task_calls
from disttrain.replica.evaluation import Sums
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.task import Split

BATCHES_AT_ONCE = 4
"""Batches of training in one forward pass, where the manifest gives no batch size."""
STALL_SECONDS = 300.0
"""A task may wait for a file that is far away. Who waits for another process uses some time."""
LEAST_STALL_SECONDS = 10.0
"""Who waits uses hundredths of a second of it in each few seconds."""

JobPath = Annotated[
    Path | None,
    typer.Option(
        "--job",
        metavar="JOB.yaml",
        help="Manifest whose task is used. Default: that of the run the checkpoint lies in.",
    ),
]


Partitions = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_PARTITIONS,
        metavar="N",
        help="Processes of this machine among which the model is divided. Default: one, which has "
        "the whole model, whatever the manifest says of training.",
    ),
]
GridOption = Annotated[
    str | None,
    typer.Option(
        "--grid",
        metavar="RxC",
        help="Rows and columns of the partitions over an image, as 2x3. Default: the manifest's if "
        "it has as many partitions, else as square as can be.",
    ),
]
StallTimeout = Annotated[
    float,
    typer.Option(
        "--stall-timeout",
        min=LEAST_STALL_SECONDS,
        max=1e6,
        metavar="SECONDS",
        help="With several partitions: end all when one of them uses no processor time for as "
        "long, as one that is stopped.",
    ),
]


def evaluate(
    checkpoint: CheckpointPath,
    job: JobPath = None,
    vector: VectorName = None,
    partitions: Partitions = None,
    grid: GridOption = None,
    stall_timeout: StallTimeout = STALL_SECONDS,
) -> None:
    """Evaluate a checkpoint's parameters with the task of its job, on the test split.

    Prints one line per measure, the mean over all samples. The task's module is taken from the
    manifest's folder, of a run's own job.yaml from where the run was begun; the checkpoint must be
    of the model that this task makes.

    With several partitions the model has to be an nn.Sequential. Layers are divided as the
    manifest says (spec.replicas.partitioning). What is measured is the same.

    Example: disttrain evaluate runs/digits

    Example: disttrain evaluate runs/images --partitions 4 --grid 2x2
    """
    asked = grids.processes(partitions, grid)
    with _ended_as_by_ctrl_c():
        lines = measured(checkpoint, job, vector, asked, stall_timeout)
    for line in lines:
        typer.echo(line)


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Inside, SIGTERM removes what lies in temporary folders, too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def measured(
    checkpoint: str,
    job_file: Path | None,
    vector: str | None = None,
    partitions: Replicas = Replicas(),  # noqa: B008 - It never changes.
    stall_seconds: float = STALL_SECONDS,
) -> list[str]:
    """Measure a checkpoint; what to print. Raises DistTrainError."""
    with checkpoint_folder.resolved(checkpoint) as meant:
        if job_file is None:
            job, folder = _own_job(checkpoint, meant)
        else:
            job, folder = manifest_file.load_job(job_file), task_folder_of(job_file)
        found = stores.verify(meant.path)
        task = task_calls.load(job, folder)
        with tempfile.TemporaryDirectory(prefix="disttrain-") as own:
            file = Path(own) / "model.safetensors"
            asked = divided_as(job, partitions)
            model = _model(found, task, asked, vector, file)
            if partitions.partitions == 1:
                # It may be as large as the machine's memory, and so may be where it lies.
                file.unlink()
                sums = _measure(job, task, model)
            else:
                given = DividedEvaluation(
                    job=asked,
                    task_folder=folder,
                    file=file,
                    batch_size=_batch_size(job),
                    stall_seconds=stall_seconds,
                )
                sums = measure_divided(given, task, model)
        return list(_lines(meant.said, sums))


def _own_job(given: str, meant: Meant) -> tuple[DistTrainJob, Path]:
    """The job of the run that was given, or that a checkpoint lies in, and its task's folder."""
    for folder in (Path(given), *meant.path.parents):
        run = RunFolder(folder)
        if run.job.exists() and run.record.exists():
            return manifest_file.load_job(run.job), task_folder_of(run.job)
    raise NoCheckpoint(
        f"{meant.said} lies in no output folder of `disttrain run`; name its job with --job"
    )


def _model(
    checkpoint: Checkpoint, task: TaskCalls, job: DistTrainJob, vector: str | None, file: Path
) -> nn.Module:
    model, initialise = division.made(task, job.spec)
    wanted = model_tensors.describe(
        model, defaults.precision(job.spec), frozen=job.spec.task.frozen
    ).with_hash()
    found = model_map.layout(checkpoint.manifest)
    state = checkpoint_folder.coordinator_state(checkpoint.path)
    if state is not None and state.layout is not None:
        # Of frozen parameters that no checkpoint holds, the run has kept the hash.
        found = replace(found, own=state.layout.own)
    model_map.require_same(*model_map.undivided(found, wanted.layout))
    export.write(checkpoint, file, vector)
    if initialise is None:
        model_tensors.load(model, file, job.spec.task.frozen)
    return model


def _batch_size(job: DistTrainJob) -> int:
    settings = job.spec.evaluation
    given = None if settings is None else settings.batch_size
    return given or BATCHES_AT_ONCE * defaults.samples_per_step(job.spec)


def _measure(job: DistTrainJob, task: TaskCalls, model: nn.Module) -> Sums:
    autocasts = defaults.autocasts(job.spec)
    place = task_calls.resolve_device(job.spec.replicas.device, autocasts=autocasts)
    examples = task.examples(Split.TEST, batch_size=1)
    move = task_calls.mover(place)
    return evaluation.evaluate(task, model.to(place), examples, _batch_size(job), move)


def _lines(said: str, sums: Sums) -> Iterator[str]:
    yield f"checkpoint {said}"
    yield f"samples {sums.samples}"
    yield f"loss {sums.mean_loss:.6g}"
    for name, value in sums.measures.items():
        yield f"{name} {value / sums.samples:.6g}"
