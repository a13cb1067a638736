"""DistBelief's figures 4 and 5 at our size: methods beside each other on the speech example.

Every method is a job of its own that begins with the same parameters, those that plain stochastic
gradient descent on one replica has come to after a short while. What is compared is the test
accuracy over the seconds of training and over the samples, and the time to a fixed accuracy.
With `--output` a page with a table and pictures is left.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.line_chart import LineChart, Points
from builders.report import Bar, measured_version, median, print_report, say, told

TESTS = Path(__file__).resolve().parents[1]
EXAMPLES = TESTS.parent / "examples"
DATA = EXAMPLES / "data" / "spoken-digits-sample.parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How large everything is."""

    layers: int
    width: int
    warm_samples: int
    """Of the run that all others begin with."""
    seconds: float
    """Of every method."""
    accuracy: float
    """The time to it is compared."""
    seeds: int
    methods: tuple["Method", ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """One line of the figures."""

    kind: str
    replicas: int
    strategy: Mapping[str, Any]

    @property
    def name(self) -> str:
        """As figures and table call it."""
        return f"{self.kind}, {self.replicas} replica{'s' if self.replicas > 1 else ''}"

    @property
    def spec(self) -> dict[str, Any]:
        """What of a manifest is this method's own."""
        fields: dict[str, Any] = {"strategy": dict(self.strategy)}
        if "downpour" in self.strategy:
            fields["batchSize"] = 64
        return fields


def downpour(kind: str, replicas: int, optimizer: Mapping[str, Any]) -> Method:
    """Stochastic gradients, pushed whenever they are there."""
    return Method(
        kind=kind, replicas=replicas, strategy={"downpour": {"optimizer": dict(optimizer)}}
    )


SGD: Mapping[str, Any] = {"sgd": {"learningRate": 0.1}}
ADAGRAD: Mapping[str, Any] = {"adagrad": {"learningRate": 0.01}}
LBFGS: Mapping[str, Any] = {
    "sandblaster": {
        "portionSize": 256,
        "pushEveryPortions": 2,
        "optimizer": {"lbfgs": {"history": 10}},
    }
}
IN_BATCHES: Mapping[str, Any] = {
    "sandblaster": {
        "batchSize": 1280,
        "portionSize": 128,
        "pushEveryPortions": 1,
        "optimizer": {"lbfgs": {"history": 10}},
    }
}
METHODS = (
    downpour("Downpour SGD", 1, SGD),
    downpour("Downpour SGD", 2, SGD),
    downpour("Downpour Adagrad", 1, ADAGRAD),
    downpour("Downpour Adagrad", 2, ADAGRAD),
    downpour("Downpour Adagrad", 4, ADAGRAD),
    Method(kind="Sandblaster L-BFGS", replicas=1, strategy=LBFGS),
    Method(kind="Sandblaster L-BFGS", replicas=2, strategy=LBFGS),
    Method(kind="Sandblaster L-BFGS", replicas=4, strategy=LBFGS),
    Method(kind="L-BFGS in batches", replicas=2, strategy=IN_BATCHES),
)
FULL = Scale(
    layers=3, width=256, warm_samples=6_400, seconds=20, accuracy=0.5, seeds=3, methods=METHODS
)
QUICK = Scale(
    layers=1, width=16, warm_samples=640, seconds=2, accuracy=0.05, seeds=1, methods=METHODS[3::3]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The test accuracy of one run as it went on."""

    over_seconds: Points
    over_samples: Points
    load: float
    """The machine's load average at the end: above its cores, seconds say little."""

    def seconds_to(self, accuracy: float) -> float:
        """Of training until the accuracy was met for the first time; NaN if it never was."""
        return _first(self.over_seconds, accuracy)

    def samples_to(self, accuracy: float) -> float:
        """As many had been processed then."""
        return _first(self.over_samples, accuracy)

    @property
    def best(self) -> float:
        """The highest accuracy."""
        return max((value for _, value in self.over_seconds), default=math.nan)

    @property
    def samples(self) -> float:
        """When it was measured last."""
        return max((samples for samples, _ in self.over_samples), default=0.0)


def _first(points: Points, least: float) -> float:
    return min((across for across, value in points if value >= least), default=math.nan)


def main() -> None:
    """Run all methods, print the report, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seconds each: that it runs")
    parser.add_argument("--output", type=Path, help="folder of the page, such as docs/methods")
    parser.add_argument("--seeds", type=int, help="runs of every method")
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    scale = QUICK if options.quick else FULL
    scale = replace(scale, seeds=options.seeds or scale.seeds)
    with tempfile.TemporaryDirectory() as name:
        found = measure_all(Path(name), scale)
        write_page(options.output or Path(name) / "page", found, scale)
    print_report("methods", {"methods": summary(found, scale)}, bars(found))


def measure_all(folder: Path, scale: Scale) -> dict[str, list[Measured]]:
    """Every method once for each seed, seed by seed."""
    for source in (*EXAMPLES.joinpath("speech").glob("*.py"), TESTS / "tasks" / "warm_speech.py"):
        (folder / source.name).symlink_to(source)
    found: dict[str, list[Measured]] = {method.name: [] for method in scale.methods}
    for seed in range(scale.seeds):
        warm = downpour("warm", 1, SGD)
        stop = {"samples": scale.warm_samples}
        start = run(folder, f"warm-{seed}", manifest(warm, scale, seed, stop))
        for at, method in enumerate(scale.methods):
            job = manifest(method, scale, seed, {"seconds": scale.seconds}, start)
            one = measured(run(folder, f"{at}-{seed}", job))
            say(f"seed {seed}, {method.name}: best accuracy {one.best:.3f}")
            found[method.name].append(one)
    return found


def manifest(
    method: Method, scale: Scale, seed: int, stop: Mapping[str, Any], start: Path | None = None
) -> dict[str, Any]:
    """A job. `start`: the output folder of a run whose model it begins with."""
    arguments = {"data": str(DATA), "layers": scale.layers, "width": scale.width}
    arguments["start"] = None if start is None else str(start / "model.safetensors")
    return {
        "apiVersion": "disttrain.dev/v1alpha1",
        "kind": "DistTrainJob",
        "metadata": {"name": "methods"},
        "spec": {
            "task": {"entrypoint": "warm_speech:WarmSpeech", "arguments": arguments},
            "seed": seed,
            "stop": dict(stop),
            "evaluation": {"everyEpochs": None, "everySeconds": scale.seconds / 20},
            "parameterServer": {"shards": 2, "threads": 1},
            "replicas": {"count": method.replicas, "threads": 1, "device": "cpu"},
            **method.spec,
        },
    }


def run(folder: Path, name: str, job: Mapping[str, Any]) -> Path:
    """One `disttrain run`; its output folder."""
    path, output = folder / f"{name}.yaml", folder / name
    path.write_text(yaml.safe_dump(dict(job)))
    command = [sys.executable, "-m", "disttrain", "run", str(path), "--output", str(output)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        message = f"{name} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise RuntimeError(message)
    return output


def measured(output: Path) -> Measured:
    """What a run folder says of the test accuracy."""
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    rows = [line for line in lines if "evaluation" in line]
    return Measured(
        over_seconds=[(row["seconds"], row["evaluation"]["accuracy"]) for row in rows],
        over_samples=[(row["samples"], row["evaluation"]["accuracy"]) for row in rows],
        load=os.getloadavg()[0],
    )


def summary(found: Mapping[str, Sequence[Measured]], scale: Scale) -> list[dict[str, Any]]:
    """Medians over the seeds."""
    return [
        {
            "name": method.name,
            "replicas": method.replicas,
            "best_accuracy": _median(found[method.name], lambda one: one.best),
            "load": _median(found[method.name], lambda one: one.load),
            "samples": _median(found[method.name], lambda one: one.samples),
            "seconds_to_accuracy": _median(
                found[method.name], lambda one: one.seconds_to(scale.accuracy)
            ),
            "samples_to_accuracy": _median(
                found[method.name], lambda one: one.samples_to(scale.accuracy)
            ),
        }
        for method in scale.methods
    ]


def bars(found: Mapping[str, Sequence[Measured]]) -> list[Bar]:
    """That every run was measured: which method is better is a finding, not a bar."""
    fewest = min(len(one.over_seconds) for runs in found.values() for one in runs)
    return [Bar("evaluations of the run that has fewest", fewest, 1)]


def _median(runs: Sequence[Measured], figure: Callable[[Measured], float]) -> float:
    return median(figure(one) for one in runs)


# The page.


def write_page(folder: Path, found: Mapping[str, Sequence[Measured]], scale: Scale) -> None:
    """figures.md with a table, and three pictures beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    seconds = {name: [one.over_seconds for one in runs] for name, runs in found.items()}
    samples = {name: [one.over_samples for one in runs] for name, runs in found.items()}
    accuracy = "accuracy on the test frames"
    for name, across, upwards, runs in (
        ("accuracy-over-seconds", "seconds of training", accuracy, seconds),
        ("accuracy-over-samples", "samples", accuracy, samples),
        (
            "seconds-over-replicas",
            "replicas",
            f"seconds to an accuracy of {scale.accuracy}",
            _over_replicas(found, scale),
        ),
    ):
        LineChart(across=across, upwards=upwards).draw(folder / f"{name}.svg", runs)
    (folder / "figures.md").write_text(page(summary(found, scale), scale))


def _over_replicas(
    found: Mapping[str, Sequence[Measured]], scale: Scale
) -> dict[str, list[list[tuple[float, float]]]]:
    """One line for each kind of method that met the accuracy, over its numbers of replicas."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for method in scale.methods:
        seconds = _median(found[method.name], lambda one: one.seconds_to(scale.accuracy))
        if math.isfinite(seconds):
            lines.setdefault(method.kind, []).append((method.replicas, seconds))
    return {kind: [points] for kind, points in lines.items()}


def titles(scale: Scale) -> tuple[str, ...]:
    """Of the columns of the table."""
    to = f"to {scale.accuracy}"
    in_all = f"samples in {scale.seconds:.0f} s"
    return ("method", "best accuracy", f"seconds {to}", f"samples {to}", in_all, "load")


def page(rows: Sequence[Mapping[str, Any]], scale: Scale) -> str:
    """The text of figures.md."""
    table = "\n".join(
        f"| {row['name']} | {row['best_accuracy']:.3f} | {told(row['seconds_to_accuracy'], 1)} "
        f"| {told(row['samples_to_accuracy'], 0)} | {row['samples']:,.0f} | {row['load']:.0f} |"
        for row in rows
    )
    return f"""# Methods beside each other: figures

Written by `tests/benchmarks/methods.py` at commit {measured_version()}: the speech example with
{scale.layers} layers of {scale.width}, its sample of recordings, {scale.warm_samples:,} samples of
SGD as the beginning of all, then {scale.seconds:g} seconds of each. Medians over {scale.seeds}
seeds; in the pictures an area shows from the lowest to the highest of them. The load is the
machine's, which has {os.cpu_count()} cores.

| {" | ".join(titles(scale))} |
|{"---|" * len(titles(scale))}
{table}

![accuracy over seconds](accuracy-over-seconds.svg)

![accuracy over samples](accuracy-over-samples.svg)

![seconds over replicas](seconds-over-replicas.svg)
"""


if __name__ == "__main__":
    main()
