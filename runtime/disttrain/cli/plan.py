"""`disttrain plan`."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from torch import nn

from disttrain.cli import grids, plan_picture, plan_text
from disttrain.cli.checkpoints import AsJson
from disttrain.cli.manifests import Assignments
from disttrain.cli.plan_beside import Beside
from disttrain.cli.plan_ranks import OfRank
from disttrain.job import defaults, manifest_file
from disttrain.job.roles import Replicas
from disttrain.launch.run_folder import task_folder_of
from disttrain.parallel import counting, pricing
from disttrain.parallel.counting import Counts, Loss
from disttrain.parallel.partitioned import CannotPartition
from disttrain.parallel.pricing import Machine, PlannedStep, Purpose
from disttrain.parallel.ways import Way
from disttrain.parallel.windows import Grid
from disttrain.replica import task_calls
from disttrain.replica.division import planned_sample, ways_of
from disttrain.replica.task_calls import TaskCalls
from disttrain.simulation import machines, step_time
from disttrain.simulation.errors import WrongMachines
from disttrain.task.errors import TaskError

_OF_LOSSES: Mapping[Loss, Sequence[str]] = {
    Loss.OF_OUTPUT: (),
    Loss.OF_PARTS: (),
    Loss.OF_STACKS: ("planned are all stacks, which are trained jointly",),
}
"""What there is to know of each."""
Job = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job whose model is divided.")]
Partitions = Annotated[
    str, typer.Option(metavar="N,N", help="Numbers of partitions, or grids as 2x3.")
]
Bandwidth = Annotated[
    str, typer.Option(metavar="RATE", help="Each way of a machine: 10Gb (bits) or 125MB (bytes).")
]
Latency = Annotated[
    str, typer.Option(metavar="TIME", help="Of every message: 50us, 0.05ms, or seconds.")
]
Flops = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        max=1e18,
        metavar="NUMBER",
        help="Floating-point operations per second of a partition. Default: as measured here.",
    ),
]
Jitter = Annotated[
    float,
    typer.Option(
        min=0.0, max=0.5, metavar="SHARE", help="Standard deviation of a layer, of its seconds."
    ),
]
Inference = Annotated[
    bool, typer.Option("--inference", help="Plan forward alone, without backward.")
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE.svg", help="Also draw the speed-up over partitions into a file."),
]


def plan(  # noqa: PLR0913, PLR0917 - One parameter per option.
    job: Job,
    partitions: Partitions = "1,2,4,8",
    bandwidth: Bandwidth = "10Gb",
    latency: Latency = "50us",
    flops: Flops = None,
    jitter: Jitter = 0.0,
    plot: Plot = None,
    assignments: Assignments = None,
    *,
    inference: Inference = False,
    as_json: AsJson = False,
) -> None:
    """Say what a model would gain by being divided over several processes.

    Nothing is trained: the divided model runs without values, and what its layers compute and send
    is counted. Seconds are of a step: forward and backward of one batch, by the machine that the
    options describe, and what a job's partitions exchange with shards and each other for it.
    Operations, parameters, activations, memory and what is sent are those of the partition with the
    most. Only an nn.Sequential can be divided. Layers lie as spec.replicas.partitioning, wholeOn
    and microBatches say; one partition has all of them. Of ranks (spec.replicas.ranks) it says what
    each has, and not how long a step takes.

    Exits with 0, with 1 if the task fails, or with 2 for a bad manifest or option.

    Example: disttrain plan job.yaml --partitions 1,2,4,8,16 --bandwidth 1Gb

    Example: disttrain plan job.yaml --partitions 1x2,2x2 --flops 5e10 --jitter 0.1

    Example: disttrain plan job.yaml --partitions 1,4,16,64 --inference --plot gains.svg
    """
    asked = grids.planned(partitions)
    machine_speed, latency_seconds = machines.bandwidth(bandwidth), machines.latency(latency)
    if plot is not None and plot.suffix != ".svg":
        message = f"--plot: {plot.name[:40]!r} does not end with .svg, the only kind that is drawn"
        raise WrongMachines(message)
    loaded = manifest_file.load_accepted(job, assignments or ()).job
    task = task_calls.load(loaded, task_folder_of(job))
    samples = defaults.samples_per_step(loaded.spec)
    model, shape, loss = _without_values(task, loaded.spec.seed)
    machine = Machine(
        flops_per_second=flops or step_time.measured_flops(),
        bytes_per_second=machine_speed,
        latency_seconds=latency_seconds,
        jitter=jitter,
    )
    purpose = Purpose.INFERENCE if inference else Purpose.TRAINING
    counts, refused = _counted(asked, loaded.spec.replicas, Planned(model, shape, samples, loss))
    beside = None if inference else Beside.of(loaded.spec, model, counts)
    planned = [
        pricing.step(each, machine, purpose).longer(beside.seconds(each, machine) if beside else {})
        for each in counts
    ]
    ranks = None if inference else OfRank.of(loaded.spec.replicas, model, samples)
    if as_json:
        told = {**_document(planned, refused, machine, beside), "ranks": ranks and ranks._asdict()}
        typer.echo(json.dumps(told, indent=2))
    else:
        # Layers on some partitions alone make partitions unlike each other.
        replicas = loaded.spec.replicas
        unlike = planned if replicas.whole_on or replicas.own_grids else ()
        each_one = chain.from_iterable(map(plan_text.of_each, unlike))
        more = [*each_one, *_OF_LOSSES[loss], *(beside.lines() if beside else ())]
        lines = plan_text.lines(planned, refused, machine, samples, more)
        typer.echo("\n".join([*(ranks.lines() if ranks else ()), *lines]))
    if plot is not None and planned:
        points = [(step.partitions, plan_text.gain(planned[0], step)) for step in planned]
        plot.write_text(plan_picture.draw(points, f"{loaded.metadata.name}: {purpose.value}"))
    raise typer.Exit(0 if planned else 2)


def _without_values(task: TaskCalls, seed: int) -> tuple[nn.Module, tuple[int, ...], Loss]:
    """The model, what a sample is, and what of the output is gathered. Raises TaskError.

    The model has its values only where the loss reads them before it calls the model.
    """
    model, _ = task.model_to_divide(seed)
    with suppress(TaskError):
        return model, *planned_sample(task, model)
    model = task.model(seed)
    return model, *planned_sample(task, model)


class Planned(NamedTuple):
    """What a step computes."""

    model: nn.Module
    sample: tuple[int, ...]
    samples: int
    loss: Loss

    def counts(self, grid: Grid, replicas: Replicas) -> Counts:
        """Raises CannotPartition."""
        return counting.counted(
            self.model,
            grid,
            self.sample,
            self.samples,
            self._ways(grid, replicas),
            loss=self.loss,
            from_first=True,
            micro_batches=replicas.micro_batches,
        )

    @staticmethod
    def _ways(grid: Grid, replicas: Replicas) -> Mapping[str, Way]:
        """One partition has all layers, wherever they are to lie."""
        ways = ways_of(replicas)
        if grid.size > 1:
            return ways
        elsewhere = {*(replicas.whole_on or {}), *replicas.own_grids}
        return {name: way for name, way in ways.items() if name not in elsewhere}


def _counted(
    grids: Sequence[Grid], replicas: Replicas, planned: Planned
) -> tuple[Sequence[Counts], Sequence[str]]:
    """What can be divided, and why the rest cannot."""
    counts, refused = [], []
    for grid in grids:
        try:
            counts.append(planned.counts(grid, replicas))
        except CannotPartition as error:
            refused.append(f"{plan_text.said(grid)}: {error}")
    return counts, refused


def _document(
    planned: Sequence[PlannedStep],
    refused: Sequence[str],
    machine: Machine,
    beside: Beside | None,
) -> dict[str, Any]:
    steps = [
        {
            **asdict(step),
            **asdict(step.largest),
            "nbytes_of_all": step.nbytes,
            "messages_of_all": step.messages,
            "speed_up": plan_text.gain(planned[0], step),
        }
        for step in planned
    ]
    found: dict[str, Any] = {"machine": asdict(machine), "steps": steps, "refused": list(refused)}
    found["job"] = beside.document() if beside else None
    return {**found, "advice": plan_text.advice(planned) if planned else None}
