"""`disttrain plan`."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from disttrain.cli import plan_picture
from disttrain.cli.checkpoints import AsJson
from disttrain.cli.manifests import Assignments
from disttrain.job import defaults, manifest_file
from disttrain.parallel import cost
from disttrain.parallel.cost import Machine, PlannedStep, Purpose
from disttrain.parallel.partitioned import CannotPartition
from disttrain.parallel.partitioning import Way
from disttrain.parallel.windows import Grid
from disttrain.replica import task_calls
from disttrain.replica.division import sample_shape
from disttrain.simulation import machines, step_time
from disttrain.simulation.errors import WrongMachines

_MOST_PARTITIONS = 256
_GRID = re.compile(r"([1-9][0-9]{0,3})(?:x([1-9][0-9]{0,3}))?")
_WORTH = 0.95
"""More partitions are worth it as long as they take at most this of the time."""
_BAR = 24
_TITLES = (
    "partitions",
    "grid",
    "step",
    "speed-up",
    "crossing",
    "waiting",
    "GFLOP",
    "parameters",
    "activations",
    "memory",
    "sent",
    "messages",
)

Job = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job whose model is divided.")]
Partitions = Annotated[
    str, typer.Option(metavar="N,N", help="Numbers of partitions, or grids as 2x3.")
]
Bandwidth = Annotated[
    str, typer.Option(metavar="RATE", help="Each way of a machine: 10Gb (bits) or 125MB (bytes).")
]
Latency = Annotated[
    float, typer.Option(min=0.0, max=1e3, metavar="SECONDS", help="Of every message.")
]
Flops = Annotated[
    float | None,
    typer.Option(
        min=1.0,
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
    latency: Latency = 0.00005,
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
    is counted. Seconds are of forward and backward of one batch, by the machine that the options
    describe. Operations, parameters, activations and memory are those of the partition with the
    most. Only an nn.Sequential can be divided.

    Exits with 0, with 1 if the task fails, or with 2 for a bad manifest or option.

    Example: disttrain plan job.yaml --partitions 1,2,4,8,16 --bandwidth 1Gb

    Example: disttrain plan job.yaml --partitions 1x2,2x2 --flops 5e10 --jitter 0.1

    Example: disttrain plan job.yaml --partitions 1,4,16,64 --inference --plot gains.svg
    """
    grids = grids_of(partitions)
    machine_speed = machines.bandwidth(bandwidth)
    if plot is not None and plot.suffix != ".svg":
        message = f"--plot: {plot.name[:40]!r} does not end with .svg, the only kind that is drawn"
        raise WrongMachines(message)
    loaded = manifest_file.load_accepted(job, assignments or ()).job
    task = task_calls.load(loaded, job.absolute().parent)
    samples = defaults.samples_per_step(loaded.spec)
    model = task.model(loaded.spec.seed)
    shape = sample_shape(task, model)
    machine = Machine(
        flops_per_second=flops or step_time.measured_flops(),
        bytes_per_second=machine_speed,
        latency_seconds=latency,
        jitter=jitter,
    )
    purpose = Purpose.INFERENCE if inference else Purpose.TRAINING
    ways = cast("Mapping[str, Way]", loaded.spec.replicas.partitioning or {})
    planned, refused = [], []
    for grid in grids:
        try:
            counts = cost.counted(model, grid, shape, samples, ways)
            planned.append(counts.step(machine, purpose))
        except CannotPartition as error:
            refused.append(f"{_said(grid)}: {error}")
    if as_json:
        typer.echo(json.dumps(_document(planned, refused, machine), indent=2))
    else:
        typer.echo("\n".join(lines(planned, refused, machine, samples)))
    if plot is not None and planned:
        points = [(step.partitions, _gain(planned[0], step)) for step in planned]
        plot.write_text(plan_picture.svg(points, f"{loaded.metadata.name}: {purpose.value}"))
    raise typer.Exit(0 if planned else 2)


def grids_of(text: str) -> tuple[Grid, ...]:
    """Of "1,4" or "2x3", the fewest partitions first. Raises WrongMachines."""
    found = {}
    for part in text.split(","):
        numbers = _GRID.fullmatch(part.strip())
        if numbers is None:
            message = (
                f"--partitions: {part[:40]!r} is neither a number of partitions nor a grid; write "
                "1,2,4 or 1x2,2x2"
            )
            raise WrongMachines(message)
        rows, columns = numbers.groups()
        grid = Grid(int(rows), int(columns)) if columns else cost.square_grid(int(rows))
        if grid.size > _MOST_PARTITIONS:
            message = f"--partitions: {part.strip()} are more than {_MOST_PARTITIONS}"
            raise WrongMachines(message)
        found[grid] = grid.size
    return tuple(sorted(found, key=found.__getitem__))


def advice(planned: Sequence[PlannedStep]) -> str:
    """Whether more partitions will help, in a sentence. Pure."""
    taken = first = planned[0]
    for step in planned[1:]:
        if step.seconds <= _WORTH * taken.seconds:
            taken = step
    if len(planned) == 1:
        return "Name several numbers of partitions to compare them."
    if not first.seconds:
        return "The model has no dense products, which is all that is counted: measure it."
    if taken is first:
        return (
            f"More than {_partitions(first)} will hardly help: what crosses takes what they save."
        )
    text = (
        f"Take {_partitions(taken)}: a step is {first.seconds / taken.seconds:.2g} times as fast "
        f"as with {first.partitions}."
    )
    if planned[-1] is not taken:
        more = planned[-1].seconds / taken.seconds
        text += f" {planned[-1].partitions} hardly help: they take {more:.2g} times as long."
    return text


def lines(
    planned: Sequence[PlannedStep], refused: Sequence[str], machine: Machine, samples: int
) -> Iterator[str]:
    """What a person reads."""
    yield from (f"cannot be divided: {each}" for each in refused)
    if not planned:
        return
    yield (
        f"a batch of {samples}, {machine.flops_per_second / 1e9:.3g} GFLOP/s, "
        f"{8 * machine.bytes_per_second / 1e9:.3g} Gbit/s, {machine.latency_seconds * 1e6:.3g} us"
    )
    yield "".join(f"{title:>12}" for title in _TITLES)
    fastest = max(_gain(planned[0], step) for step in planned)
    for step in planned:
        gained = _gain(planned[0], step)
        bar = "#" * max(1, round(_BAR * gained / fastest))
        yield "".join(f"{cell:>12}" for cell in _cells(step, gained)) + f"  {bar}"
    yield from planned[-1].notes
    yield advice(planned)


def _cells(step: PlannedStep, gained: float) -> Iterator[str]:
    """In the order of `_TITLES`."""
    seconds = step.seconds or 1.0
    yield str(step.partitions)
    yield _said(step.grid)
    yield _time(step.seconds)
    yield f"{gained:.2f}"
    yield f"{step.crossing_seconds / seconds:.0%}"
    yield f"{step.waiting_seconds / seconds:.0%}"
    yield f"{step.flops / 1e9:.3g}"
    yield f"{step.parameters:,}"
    yield _bytes(step.activation_bytes)
    yield _bytes(step.memory_bytes)
    yield _bytes(step.nbytes)
    yield f"{step.messages:,}"


def _gain(first: PlannedStep, step: PlannedStep) -> float:
    """How many times as fast; 1 where neither takes any time that is counted."""
    return first.seconds / step.seconds if step.seconds else 1.0


def _document(
    planned: Sequence[PlannedStep], refused: Sequence[str], machine: Machine
) -> dict[str, Any]:
    steps = [{**asdict(step), "speed_up": _gain(planned[0], step)} for step in planned]
    found: dict[str, Any] = {"machine": asdict(machine), "steps": steps, "refused": list(refused)}
    return {**found, "advice": advice(planned) if planned else None}


def _partitions(step: PlannedStep) -> str:
    return f"{step.partitions} partition{'s' if step.partitions > 1 else ''}"


def _said(grid: Grid) -> str:
    return f"{grid.rows}x{grid.columns}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _bytes(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} B"
