"""`disttrain simulate`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic.alias_generators import to_camel

from disttrain.cli.checkpoints import AsJson
from disttrain.cli.manifests import Assignments
from disttrain.job import defaults, manifest_file
from disttrain.launch.run_folder import task_folder_of
from disttrain.replica import task_calls
from disttrain.simulation import comparison, machines, outcome, runs, step_time
from disttrain.simulation.errors import NotSimulated
from disttrain.simulation.evaluations import Point, Result
from disttrain.simulation.machines import Machines
from disttrain.simulation.outcome import Outcome
from disttrain.simulation.runs import AnyRun
from disttrain.simulation.setting import Setting, prepare

_EVALUATIONS_PER_EPOCH = 4

Jobs = Annotated[list[Path], typer.Argument(metavar="JOB.yaml", help="Manifests to compare.")]
Replicas = Annotated[str, typer.Option(metavar="N,N", help="Numbers of replicas to simulate.")]
StepSeconds = Annotated[
    float | None,
    typer.Option(
        min=1e-6,
        max=3600.0,
        metavar="SECONDS",
        help="What a replica computes for a batch, or for a portion of a batch method. "
        "Default: as measured on this machine.",
    ),
]
Bandwidth = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="Each way of every machine: 1Gb (bits) or 125MB (bytes) per second. "
        "Default: the network holds up nothing.",
    ),
]
Latency = Annotated[
    str,
    typer.Option(metavar="TIME", help="One way, of every message: 25ms, 50us, or seconds."),
]
Stragglers = Annotated[
    list[str] | None,
    typer.Option(
        "--straggler",
        metavar="I=FACTOR",
        help="Steps of replica I take FACTOR times as long; repeatable.",
    ),
]
Jitter = Annotated[
    float,
    typer.Option(
        min=0.0, max=0.5, metavar="SHARE", help="Standard deviation of a step, of its seconds."
    ),
]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="SAMPLES",
        help="Between two evaluations. Default: a quarter of an epoch; with stop.patience "
        "as far apart as the job's.",
    ),
]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="PATH=VALUE",
        help="Simulate each manifest also with this field; repeatable.",
    ),
]


def simulate(  # noqa: PLR0913, PLR0917 - One parameter per option.
    jobs: Jobs,
    replicas: Replicas = "1,2,4,8",
    step_seconds: StepSeconds = None,
    bandwidth: Bandwidth = None,
    latency: Latency = "0.2ms",
    straggler: Stragglers = None,
    jitter: Jitter = 0.05,
    evaluate_every: EvaluateEvery = None,
    assignments: Assignments = None,
    variants: Variants = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Train jobs in virtual time with several numbers of replicas, and say which to take.

    Gradients, staleness and accuracy are real: the task's code computes them, on this machine, one
    step after the other. Time is not: a step, a message and a shard's work take what the options
    say. So a simulation takes as long as all its steps take here. A batch method makes the same
    model with any number of replicas, so its steps are computed once for all numbers.

    With --step-seconds the same seed gives the same figures. Exits with 0, with 1 if the task
    fails, or with 2 for a bad manifest or option.

    Example: disttrain simulate job.yaml --replicas 1,4,16 --step-seconds 0.2 --bandwidth 1Gb

    Example: disttrain simulate job.yaml other.yaml --straggler 3=4

    Example: disttrain simulate job.yaml --variant 'spec.strategy={localSteps: {}}'
    """
    _require_others(jobs)
    counts = machines.replica_counts(replicas)
    slower = machines.stragglers(straggler or (), counts[-1])
    speed = None if bandwidth is None else machines.bandwidth(bandwidth)
    latency_seconds = machines.latency(latency)
    contenders = [
        _Contender(file, change, counts, assignments or ())
        for file in jobs
        for change in (None, *dict.fromkeys(variants or ()))
    ]
    found = []
    for each in contenders:
        assumed = Machines(
            step_seconds=step_seconds or each.measured(),
            jitter=jitter,
            slower=slower,
            bytes_per_second=speed,
            latency_seconds=latency_seconds,
        )
        found.append(each.simulated(assumed, evaluate_every))
    if as_json:
        typer.echo(comparison.to_json(found), nl=False)
        return
    typer.echo("\n".join(map(outcome.text, found)), nl=False)
    if (advice := comparison.advice(found)) is not None:
        typer.echo(f"\n{advice}.")


class _Contender:
    """A manifest, or a variant of it, and what is found of it."""

    def __init__(
        self, file: Path, change: str | None, counts: Sequence[int], assignments: Sequence[str]
    ) -> None:
        self.manifest = str(file) if change is None else f"{file}, {change}"
        changes = assignments if change is None else [*assignments, change]
        self._job = manifest_file.load_accepted(file, changes).job
        self._setting = prepare(self._job, task_calls.load(self._job, task_folder_of(file)))
        self._counts = counts
        runs.require_room(self._setting, counts)

    def measured(self) -> float:
        """Seconds of a step here."""
        seconds = step_time.measure(self._setting)
        text = f"{self.manifest}: a step takes {seconds:.3g} s here; --step-seconds says another"
        typer.echo(text, err=True)
        return seconds

    def simulated(self, assumed: Machines, evaluate_every: int | None) -> Outcome:
        """With each number of replicas. `evaluate_every`: samples; None: as the job does."""
        spec = self._setting.spec
        least = defaults.samples_per_step(spec)
        every = evaluate_every or max(least, _between_evaluations(self._setting))
        make = runs.maker(self._setting, assumed, every)
        return Outcome(
            job=self._job.metadata.name,
            manifest=self.manifest,
            strategy=to_camel(spec.strategy.rule.name),
            target=spec.stop.target_metric,
            less_network=spec.strategy.rule.against_a_slow_network,
            results=tuple(_run(self.manifest, make(count)) for count in self._counts),
        )


def _require_others(jobs: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for file in jobs:
        if file.resolve() in seen:
            message = f"JOB.yaml: {file} is given twice; name each manifest once"
            raise NotSimulated(message)
        seen.add(file.resolve())


def _between_evaluations(setting: Setting) -> int:
    """Samples. Patience counts evaluations, so then they are as far apart as the job's."""
    stop, evaluation = setting.spec.stop, setting.spec.evaluation
    if stop.patience is not None and evaluation is not None and evaluation.every_epochs:
        return evaluation.every_epochs * setting.train_samples
    return setting.train_samples // _EVALUATIONS_PER_EPOCH


def _run(name: str, run: AnyRun) -> Result:
    """Simulate, with one line on a terminal that the next one takes the place of."""
    if not sys.stderr.isatty():
        return run.run()
    began = time.monotonic()
    head = f"{name}, replicas {run.replicas}"

    def tell(point: Point) -> None:
        loss = "" if point.measured.loss is None else f", loss {point.measured.loss:.4g}"
        line = (
            f"{head}: {point.samples:,} samples, {point.seconds:.3g} s{loss} "
            f"(simulated in {time.monotonic() - began:.0f} s)"
        )
        typer.echo(f"\r\x1b[K{line}", err=True, nl=False)

    run.evaluations.tell = tell
    found = run.run()
    typer.echo("\r\x1b[K", err=True, nl=False)
    return found
