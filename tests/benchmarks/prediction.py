"""Serving a prediction (PP-ASGD) beside serving the parameters, of the same shard.

    .venv/bin/python tests/benchmarks/prediction.py [--quick]

One replica fetches the whole vector of one or the other in turn; medians of interleaved rounds. In
another series each fetch comes after a push, as in training: that is what a step waits for.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import placements
from builders.jobs import SMALL
from builders.lone_shard import PLAIN, LoneShard
from builders.report import Bar, print_report
from disttrain.job.parsing import parse_job
from disttrain.parameter_server.client import FetchClient, Push, PushClient
from disttrain.transport.config import TransportKind

NAMES = ("parameters", "prediction")
PREDICTING = (
    "spec.strategy.downpour={optimizer: {momentum: {learningRate: 0.01}}, staleness: {predict: {}}}"
)
WIRES = {
    "TLS": (TransportKind.TCP, []),
    "TCP": (TransportKind.TCP, [PLAIN]),
    "shared memory": (TransportKind.SHARED_MEMORY, [PLAIN]),
}
"""Between machines, the same without encryption, and on one machine."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small model: that it runs")
    quick = parser.parse_args().quick
    elements, rounds = (1_000_000, 3) if quick else (42_000_000, 21)
    figures: dict[str, Any] = {"parameters": elements, "rounds": rounds}
    bars: list[Bar] = []
    for wire in WIRES:
        with tempfile.TemporaryDirectory() as folder:
            figures[wire] = found = measure(wire, elements, rounds, Path(folder))
        for series, ratio in found["ratio"].items():
            name = f"{wire}, {series}: prediction to parameters"
            bars.append(Bar(name, ratio, 1.1, at_least=False))
    print_report("prediction", figures, bars)


def measure(wire: str, elements: int, rounds: int, folder: Path) -> dict[str, Any]:
    kind, assignments = WIRES[wire]
    job = parse_job(SMALL, assignments=[*assignments, PREDICTING])
    with LoneShard(job, folder, kind, {placements.PARAMETERS: elements}) as shard:
        config = shard.client_config(0)
        pushes, fetches = PushClient(config), FetchClient(config)
        memory = config.transport.memory("replica")
        gradient, place = (memory.allocate(name, 4 * elements) for name in ("gradient", "place"))
        np.frombuffer(gradient.view, np.float32)[:] = 1e-3
        pushes.upload({placements.PARAMETERS: gradient}, [0])
        number = 0

        def fetch(name: str) -> None:
            fetches.fetch({placements.PARAMETERS.beside(name): place})

        def push_and_fetch(name: str) -> None:
            nonlocal number
            number += 1
            pushes.push(Push(sequence=number, gradient=gradient, samples=1))
            fetch(name)

        series = {"a fetch": fetch, "a push and a fetch": push_and_fetch}
        seconds = {name: _in_turn(act, rounds) for name, act in series.items()}
        pushes.close()
        fetches.close()
    ratio = {name: found["prediction"] / found["parameters"] for name, found in seconds.items()}
    return {"seconds": seconds, "ratio": ratio}


def _in_turn(act: Callable[[str], None], rounds: int) -> dict[str, float]:
    """The median for each name, after a round to warm up."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for round_number in range(rounds + 1):
        for name in NAMES:
            began = time.perf_counter()
            act(name)
            if round_number:
                found[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in found.items()}


if __name__ == "__main__":
    main()
