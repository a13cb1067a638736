"""Bytes of memory per parameter, of a shard with Adagrad and of a replica.

A real job with a model that is one vector runs until it has taken some steps; then the memory of
its processes is read. What the same job needs with 1,000 parameters is taken off: the interpreter
and PyTorch. A shard's memory is what no other process has mapped; a replica's includes the
segments that it shares with the shard, which it owns.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.report import Bar, print_report
from builders.runs import BULKY, RunningJob

STEPS = 6
CONSTANT_BYTES = 128 << 20
"""Allowed beside the vectors: queues of the transport, pieces of the update rule, allocator."""
FLOAT = 4
CASES = {
    "shared memory": ("spec.transport=sharedMemory",),
    "tcp": ("spec.transport=tcp",),
    "shared memory, pushEvery 2 with local steps": (
        "spec.transport=sharedMemory",
        "spec.strategy.downpour={pushEvery: 2, fetchEvery: 2, optimizer: {sgd: {learningRate: 1}}}",
    ),
    "shared memory, pushEvery 2 without local steps": (
        "spec.transport=sharedMemory",
        "spec.strategy.downpour={pushEvery: 2, fetchEvery: 2, localLearningRate: 0, "
        "optimizer: {sgd: {learningRate: 1}}}",
    ),
}
VECTORS_OF_REPLICA = {name: 5 if "with local steps" in name else 4 for name in CASES}
"""Parameters, one incoming copy, two gradient buffers; one more to accrue with local steps."""


def main() -> None:
    """Measure every case and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small model: that it runs")
    quick = parser.parse_args().quick
    parameters = 1_000_000 if quick else 42_000_000
    figures: dict[str, Any] = {"parameters": parameters, "constant_bytes": CONSTANT_BYTES}
    bars: list[Bar] = []
    for name, assignments in CASES.items():
        small, large = memory(1000, assignments), memory(parameters, assignments)
        grown = {role: large[role] - small[role] for role in large}
        figures[name] = {"bytes": large, "bytes_beside_the_interpreter": grown}
        per_role = {"replica": VECTORS_OF_REPLICA[name], "shard": 1 if "pushEvery" in name else 2}
        for role, vectors in per_role.items():
            bound = vectors * FLOAT * parameters + CONSTANT_BYTES
            title = f"{name}: {role} bytes, {vectors} vectors and a constant"
            bars.append(Bar(title, grown[role], bound, at_least=False))
    print_report("memory", figures, bars)


def memory(parameters: int, assignments: tuple[str, ...]) -> dict[str, int]:
    """Bytes of the shard and of the replica after some steps."""
    size = (
        f"spec.task.arguments.parameters={parameters}",
        "spec.replicas.count=1",
        "spec.parameterServer={shards: 1, durability: none}",
        "spec.checkpoint={}",
        "spec.stop={epochs: 1}",
    )
    with tempfile.TemporaryDirectory() as folder:
        job = RunningJob(Path(folder), [*assignments, *size], manifest=BULKY)
        with job:
            job.wait_until(lambda status: status.get("steps", 0) >= STEPS)
            shard = psutil.Process(job.pid("shard-0")).memory_full_info()
            replica = psutil.Process(job.pid("replica-0")).memory_info()
            return {"shard": int(shard.uss), "replica": int(replica.rss)}


if __name__ == "__main__":
    main()
