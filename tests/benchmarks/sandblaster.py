"""What batch methods cost beside the gradients: operations on vectors, and waiting for the slow.

Vectors: shards in processes of their own carry out the commands of L-BFGS on a model of 42 million
parameters; beside it what the memory gives, and the same method one operation at a time. Memory is
measured in three ways while all shards do the same: a copy, which reads and writes at once, one
vector that is only read, and the two products that the commands consist of, of a bare matrix.
Stragglers: replicas whose work is a timer, one of them ten times slower than the others.
"""

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.batch_problems import RULES
from builders.report import Bar, print_report
from disttrain.sandblaster import kernels, operations
from disttrain.sandblaster.batch.driver import Driver, DriverRules, Stage
from disttrain.sandblaster.batch.groups import BackupRules, Result, Worker
from disttrain.sandblaster.batch.programs import Performed
from disttrain.sandblaster.descent import Descent
from disttrain.sandblaster.lbfgs import Lbfgs
from disttrain.sandblaster.method import Answer, Request
from disttrain.sandblaster.operations import ARRIVED, PARAMETERS, TRIAL, Operation
from disttrain.sandblaster.vectors import Vectors
from oracles.batch_method import BatchMethod, Method
from oracles.plain_lbfgs import PlainLbfgs

SHARDS = 2
HISTORY = 10
TRANSFERS = 4 * HISTORY + 7
"""Vectors that a direction, a trial point and the products move through memory at least."""
BANDWIDTH_FRACTION = 0.6
EXACT_EVERY = RULES.exact_every
"""Iterations, of which one computes all products from the vectors: as many are measured."""
STRAGGLER_BAR = 1.15
SPEEDS = (1.0, 1.0, 1.0, 0.1)
EVALUATE, BANDWIDTH = "evaluate", "bandwidth"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small model, short timers")
    quick = parser.parse_args().quick
    vectors = measure_vectors(400_000 if quick else 42_000_000)
    stragglers = measure_stragglers(0.002 if quick else 0.01)
    bars = [
        Bar(
            "commands of L-BFGS against copies of as many bytes",
            vectors["fraction_of_copying"],
            0.0 if quick else BANDWIDTH_FRACTION,
            at_least=True,
        ),
        Bar(
            "control messages per shard and evaluation",
            vectors["orders_per_evaluation"],
            2.2,
            at_least=False,
        ),
        Bar(
            "time per batch with copies against the ideal",
            stragglers["with_copies_over_ideal"],
            3.0 if quick else STRAGGLER_BAR,
            at_least=False,
        ),
    ]
    print_report("sandblaster", {"vectors": vectors, "stragglers": stragglers}, bars)


# Vectors.


def serve_shard(pipe: Connection, elements: int) -> None:
    """A shard in its own process: commands, and a gradient that costs one pass."""
    vectors = Vectors(elements, np.float32)
    vectors.make(PARAMETERS)[:] = 1.0
    scales = np.geomspace(1.0, 100.0, elements).astype(np.float32)
    while (wanted := pipe.recv()) is not None:
        began = time.perf_counter()
        if wanted == EVALUATE:
            gradient, trial = vectors.make(ARRIVED), vectors[TRIAL]
            np.multiply(scales, trial, out=gradient)
            answer: tuple[float, ...] = (float(np.dot(gradient, trial)) / 2,)
        elif wanted == BANDWIDTH:
            answer = (_copies(vectors.make(ARRIVED), scales), _reads(scales), _bare(elements))
        else:
            answer = vectors.perform(wanted)
        pipe.send((answer, time.perf_counter() - began))


def _copies(target: Any, source: Any) -> float:
    """Bytes per second that a copy reads and writes, while the other shards do the same."""
    np.copyto(target, source)
    began = time.perf_counter()
    for _ in range(5):
        np.copyto(target, source)
    return 5 * 2 * int(source.nbytes) / (time.perf_counter() - began)


def _reads(source: Any) -> float:
    """Bytes per second that the same processor reads and does next to nothing with."""
    np.max(source)
    began = time.perf_counter()
    for _ in range(5):
        np.max(source)
    return 5 * int(source.nbytes) / (time.perf_counter() - began)


def _bare(elements: int) -> float:
    """Bytes per second of the least that there is to do: products with rows, and a sum of them."""
    rows = 2 * HISTORY + 1
    matrix = np.ones((rows + 2, elements), np.float32)
    width = kernels.STRETCH_ELEMENTS
    factors = np.full(rows, 0.5, np.float32)
    began = time.perf_counter()
    for first in range(0, elements - width, width):
        blocks = matrix[:, first : first + width].reshape(rows + 2, -1, kernels.BLOCK_ELEMENTS)
        several = blocks[:rows].transpose(1, 0, 2)
        np.matmul(several, blocks[rows, :, :, np.newaxis])
    for first in range(0, elements - width, width):
        blocks = matrix[:, first : first + width].reshape(rows + 2, -1, kernels.BLOCK_ELEMENTS)
        np.matmul(factors, blocks[:rows].transpose(1, 0, 2), out=blocks[rows + 1])
    moved = 2 * (rows + 1) * 4 * elements
    return moved / (time.perf_counter() - began)


@dataclass
class Fleet:
    """The shards' processes, and what their commands cost."""

    pipes: list[Connection]
    seconds: float = 0.0
    """Of commands: of the slowest shard of each."""
    commands: int = 0

    def ask(self, wanted: object) -> tuple[list[tuple[float, ...]], float]:
        for pipe in self.pipes:
            pipe.send(wanted)
        answers = [pipe.recv() for pipe in self.pipes]
        return [answer for answer, _ in answers], max(seconds for _, seconds in answers)

    def command(self, command: tuple[Operation, ...]) -> tuple[float, ...]:
        if not command:
            return ()
        answers, seconds = self.ask(command)
        self.seconds, self.commands = self.seconds + seconds, self.commands + 1
        return operations.merged(command, answers)

    def answer(self, request: Request) -> Answer:
        prepared = self.command(request.prepare)
        loss = 0.0
        if request.evaluates:
            answers, _ = self.ask(EVALUATE)
            loss = sum(answer[0] for answer in answers)
        return Answer(scalars=prepared + self.command(request.measure), loss=loss)


@contextmanager
def a_fleet(elements: int) -> Iterator[Fleet]:
    # Set before the processes begin: their BLAS reads it when it is loaded.
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(SHARDS)]
    processes = [
        context.Process(target=serve_shard, args=(theirs, elements // SHARDS), daemon=True)
        for _, theirs in pairs
    ]
    for process in processes:
        process.start()
    try:
        yield Fleet([ours for ours, _ in pairs])
    finally:
        for ours, _ in pairs:
            ours.send(None)
        for process in processes:
            process.join()


def measure_vectors(elements: int) -> dict[str, Any]:
    """Fused commands and single operations, on vectors of the same length."""
    with a_fleet(elements) as fleet:
        rates, _ = fleet.ask(BANDWIDTH)
        copied, read, bare = (min(rate[which] for rate in rates) for which in range(3))
        moved = TRANSFERS * 4 * (elements // SHARDS)
        found = _per_evaluation(BatchMethod(Descent(RULES, Lbfgs(history=HISTORY))), fleet)
    with a_fleet(elements) as fleet:
        plain = _per_evaluation(PlainLbfgs(RULES, HISTORY), fleet)
    return {
        "parameters": elements,
        "copy_gigabytes_per_second_and_shard": copied / 1e9,
        "read_gigabytes_per_second_and_shard": read / 1e9,
        "bare_gigabytes_per_second_and_shard": bare / 1e9,
        "bound_seconds": moved / copied,
        "bound_seconds_of_reading": moved / read,
        "bare_seconds": moved / bare,
        "seconds": found["seconds"],
        "orders_per_evaluation": found["orders"],
        "fraction_of_copying": moved / copied / found["seconds"],
        "fraction_of_reading": moved / read / found["seconds"],
        "fraction_of_bare": moved / bare / found["seconds"],
        "one_by_one_seconds": plain["seconds"],
        "one_by_one_orders_per_evaluation": plain["orders"],
    }


def _per_evaluation(method: Method, fleet: Fleet) -> dict[str, float]:
    """Time in commands and their number, once the history is full."""
    request = method.advance(None)
    began: tuple[float, int, int] | None = None
    while request is not None and method.progress.iteration < HISTORY + 1 + EXACT_EVERY:
        request = method.advance(fleet.answer(request))
        if began is None and method.progress.iteration == HISTORY + 1:
            began = (fleet.seconds, fleet.commands, method.progress.evaluations)
    if began is None:
        message = "the method ended before its history was full"
        raise RuntimeError(message)
    evaluations = method.progress.evaluations - began[2]
    return {
        "seconds": (fleet.seconds - began[0]) / evaluations,
        "orders": (fleet.commands - began[1]) / evaluations,
    }


# Stragglers.

PORTIONS, PORTIONS_PER_GROUP = 200, 4


@dataclass
class Team:
    """Replicas as threads around one coordinator's course."""

    driver: Driver
    portion_seconds: float
    lock: threading.Lock = field(default_factory=threading.Lock)

    def batch_seconds(self) -> float:
        """How long one evaluation takes."""
        course = self.driver.begin(1, (1,))
        self.driver.answered(course, 0, Performed(number=1, scalars=()))
        began = time.perf_counter()
        done = threading.Event()

        def work(index: int, speed: float) -> None:
            worker = Worker(index, 1)
            while not done.is_set():
                with self.lock:
                    attempt = self.driver.request_group(course, worker)
                if attempt is None:
                    done.wait(self.portion_seconds / 10)
                    continue
                done.wait(PORTIONS_PER_GROUP * self.portion_seconds / speed)
                result = Result(
                    attempt=attempt.number, evaluation=1, loss_sum=1.0, samples=1, shards=(1,)
                )
                with self.lock:
                    self.driver.staged(course, worker, result)
                    if course.stage is Stage.MEASURING:
                        done.set()

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(SPEEDS)]
        for thread in threads:
            thread.start()
        done.wait()
        seconds = time.perf_counter() - began
        for thread in threads:
            thread.join()
        return seconds


def measure_stragglers(portion_seconds: float) -> dict[str, Any]:
    """Time per batch, with and without copies of what the slow one holds."""
    ideal = PORTIONS * portion_seconds / math.fsum(SPEEDS)
    found: dict[str, float] = {}
    for name, rules in (("with_copies", BackupRules()), ("without", BackupRules(enabled=False))):
        driver_rules = DriverRules(groups=PORTIONS // PORTIONS_PER_GROUP, backup=rules)
        driver = Driver(Descent(RULES, Lbfgs()), driver_rules)
        found[name] = statistics.median(
            Team(driver, portion_seconds).batch_seconds() for _ in range(5)
        )
    return {
        "portions": PORTIONS,
        "ideal_seconds": ideal,
        "with_copies_over_ideal": found["with_copies"] / ideal,
        "without_over_ideal": found["without"] / ideal,
    }


if __name__ == "__main__":
    main()
