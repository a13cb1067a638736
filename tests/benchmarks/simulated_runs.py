"""`disttrain simulate` beside real runs whose replicas sleep as long as a step is said to take.

Processes, shards and messages of the real runs are real, and their evaluations take time. Three
runs each, of which the median counts.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import measured_jobs
from builders.report import Bar, print_report, say

TASKS = Path(__file__).resolve().parents[1] / "tasks"
MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: simulated}
spec:
  task: {entrypoint: spirals:Spirals}
  strategy: {downpour: {}}
  batchSize: 32
  stop: {samples: 1}
  evaluation: null
  parameterServer: {shards: 2, threads: 1}
  replicas: {threads: 1, device: cpu}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much is measured."""

    replicas: Sequence[int]
    runs: int
    steps_each: int
    """Of a replica in a run."""


FULL = Scale(replicas=(1, 4, 16), runs=3, steps_each=200)
QUICK = Scale(replicas=(1, 4), runs=1, steps_each=40)


def step_seconds(replicas: int) -> float:
    """Of each replica's. Many sleep longer: what they compute is to fit into two cores.

    What `simulate` does not know is that real replicas here share a machine.
    """
    return 0.1 if replicas <= 4 else 0.5


@dataclass(frozen=True, slots=True)
class Run:
    """What is compared."""

    samples_per_second: float
    staleness: float
    """The median over all pushes."""


def main() -> None:
    """Measure both, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: that it works")
    scale = QUICK if parser.parse_args().quick else FULL
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    figures, bars = [], []
    for replicas in scale.replicas:
        samples = replicas * scale.steps_each * 32
        runs = [real(replicas, samples) for _ in range(scale.runs)]
        found = Run(
            statistics.median(run.samples_per_second for run in runs),
            statistics.median(run.staleness for run in runs),
        )
        forecast = simulated(replicas, samples)
        say(f"{replicas} replicas: {found}, simulated {forecast}")
        figures.append({"replicas": replicas, "real": asdict(found), "simulated": asdict(forecast)})
        ratio = forecast.samples_per_second / found.samples_per_second
        bars += [
            Bar(f"{replicas} replicas, samples per second, simulated to real", ratio, 0.8),
            Bar(f"{replicas} replicas, the same, at most", ratio, 1.2, at_least=False),
            Bar(
                f"{replicas} replicas, median staleness, difference",
                abs(forecast.staleness - found.staleness),
                0.0,
                at_least=False,
            ),
        ]
    print_report("simulated_runs", {"runs": figures}, bars)


def real(replicas: int, samples: int) -> Run:
    """One `disttrain run`; what it did between its first and its last line of metrics."""
    fields: dict[str, Any] = {
        "task.arguments": {"step_seconds": step_seconds(replicas)},
        "replicas.count": replicas,
        "stop": {"samples": samples},
    }
    lines = measured_jobs.run(MANIFEST, [TASKS / "spirals.py"], fields).lines
    stale = [line["stalenessP50"] for line in lines if line.get("stalenessP50") is not None]
    # Until all replicas have begun some steps are not those of a run under way.
    known = [line for line in lines if line.get("samples")]
    under_way = [line for line in known if line["samples"] >= samples / 10]
    first, last = under_way[0], under_way[-1]
    seconds = last["seconds"] - first["seconds"]
    speed = (last["samples"] - first["samples"]) / seconds if seconds else math.nan
    return Run(speed, statistics.median(stale) if stale else math.nan)


def simulated(replicas: int, samples: int) -> Run:
    """The same by `disttrain simulate`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "spirals.py").symlink_to(TASKS / "spirals.py")
        (folder / "job.yaml").write_text(MANIFEST)
        command = [sys.executable, "-m", "disttrain", "simulate", str(folder / "job.yaml")]
        command += ["--replicas", str(replicas), "--step-seconds", str(step_seconds(replicas))]
        command += ["--set", f"spec.stop.samples={samples}", "--evaluate-every", str(samples)]
        printed = subprocess.run(
            [*command, "--jitter", "0.01", "--json"], check=True, capture_output=True, text=True
        ).stdout
    ((run,),) = [document["runs"] for document in json.loads(printed)["jobs"]]
    counts = sorted((int(stale), count) for stale, count in run["staleness"].items())
    each = [stale for stale, count in counts for _ in range(count)]
    return Run(run["samplesPerSecond"], statistics.median(each))


if __name__ == "__main__":
    main()
