"""An evaluation whose model is divided among processes of this machine."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import typer
from torch import nn

from disttrain.job.names import Role
from disttrain.job.roles import Replicas
from disttrain.job.spec import DistTrainJob
from disttrain.launch import linux
from disttrain.launch.config import Evaluation, LaunchConfig
from disttrain.launcher import evaluating
from disttrain.replica.division import Division, sample_shape
from disttrain.replica.evaluation import Sums
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.errors import ModelError
from disttrain.task.task import Split
from disttrain.transport.config import TransportKind


@dataclass(frozen=True, kw_only=True, slots=True)
class DividedEvaluation:
    """What is evaluated, and how."""

    job: DistTrainJob
    """With the partitions of the evaluation, see `divided_as`."""
    task_folder: Path
    file: Path
    """The model's values, in a folder of this command alone."""
    batch_size: int
    stall_seconds: float
    """For how long one of its processes may use no processor time."""


def divided_as(job: DistTrainJob, asked: Replicas) -> DistTrainJob:
    """The job with the partitions that are asked for instead of those that it trains with.

    The manifest's grid stays if it has as many.
    """
    trained = job.spec.replicas
    rows, columns = trained.rows_and_columns or (0, 0)
    fits = rows * columns == asked.partitions
    update = {
        "given_partitions": asked.partitions,
        "grid": asked.grid or (trained.grid if fits else None),
        "ranks": 1,
        "inner": None,
    }
    replicas = trained.model_copy(update=update)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"replicas": replicas})})


def measure_divided(given: DividedEvaluation, task: TaskCalls, model: nn.Module) -> Sums:
    """Sums over the test split, by new processes. `model`: what they evaluate; loses its values.

    Raises ModelError before any is started, and EvaluationLost.
    """
    replicas = given.job.spec.replicas
    sample = sample_shape(task, model, Split.TEST)
    try:
        planned = Division(model, replicas, sample, torch.device("cpu")).planned(0)
    except ModelError as error:
        message = f"--partitions {replicas.partitions}: {error.__cause__}"
        raise ModelError(message) from error
    for note in planned.notes:
        typer.echo(note, err=True)
    own = given.file.parent
    told = Evaluation(
        model_file=given.file,
        sample=sample,
        batch_size=given.batch_size,
        result=own / "sums.json",
        meeting=own / "meeting",
    )
    told.meeting.mkdir()
    # Its values have to lie in the processes alone.
    model.to("meta")
    evaluating.run(_first(given, told, own / "run"), given.stall_seconds)
    return Sums(**json.loads(told.result.read_bytes()))


def _first(given: DividedEvaluation, told: Evaluation, run_folder: Path) -> LaunchConfig:
    """What the first process is told."""
    replicas = given.job.spec.replicas
    return LaunchConfig(
        job=given.job,
        job_uid="",
        role=Role.REPLICA,
        index=0,
        run_folder=run_folder,
        task_folder=given.task_folder.absolute(),
        coordinator_address="",
        transport=TransportKind.SHARED_MEMORY,
        threads=max(1, linux.usable_cores() // replicas.partitions),
        device=replicas.device,
        evaluation=told,
    )
