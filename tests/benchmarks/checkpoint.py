"""How long a checkpoint stops a shard, and how fast it is written.

A real shard process holds 42 million parameters with Adagrad's state. One replica pushes without a
pause; another asks for a few bytes again and again, and so notices whenever the shard answers
nobody. The shard writes checkpoints meanwhile; a plain write of the same bytes is beside it.
"""

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import placements
from builders.checkpoints import folder_of
from builders.jobs import SMALL
from builders.lone_shard import PLAIN, LoneShard
from builders.report import Bar, print_report
from disttrain.checkpoint import names, part_file, stores
from disttrain.checkpoint.stores import Store
from disttrain.coordinator.protocol.commands import Checkpoint, ShardWritten
from disttrain.job.parsing import parse_job
from disttrain.parameter_server.client import FetchClient, Push, PushClient
from disttrain.state.vector import Vector
from disttrain.transport.config import TransportKind
from disttrain.transport.interface import Memory

PROBE_ELEMENTS = 16
LONGEST_BLOCKING_SECONDS = 0.2
BARS = ("blocking_seconds_of_the_shard", "longest_wait_of_a_client_seconds")
JOB = SMALL.replace("{sgd: {learningRate: 0.1}}", "{adagrad: {learningRate: 0.05}}")
HEARTBEAT = "spec.coordinator.heartbeatSeconds=0.02"


@dataclass
class Load:
    """What the clients saw: when each push ended, and how long each small fetch took."""

    pushes: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)

    def pushes_per_second(self, first: float, end: float) -> float:
        return sum(first <= at < end for at in self.pushes) / (end - first)

    def waits_between(self, first: float, end: float) -> list[float]:
        return [wait for at, wait in self.waits if at + wait >= first and at < end]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small model, one checkpoint")
    parser.add_argument("--folder", type=Path, help="where to write; default: the system's")
    arguments = parser.parse_args()
    elements, rounds = (1_000_000, 1) if arguments.quick else (42_000_000, 3)
    figures: dict[str, Any] = {"parameters": elements, "rounds": rounds}
    bars: list[Bar] = []
    for kind in (TransportKind.SHARED_MEMORY, TransportKind.TCP):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            found = measure(kind, elements, rounds, Path(folder))
        figures[kind.value] = found
        bars.extend(_bar(kind, name, found) for name in BARS)
    print_report("checkpoint", figures, bars)


def _bar(kind: TransportKind, name: str, found: dict[str, Any]) -> Bar:
    return Bar(f"{kind.value}: {name}", found[name], LONGEST_BLOCKING_SECONDS, at_least=False)


def measure(kind: TransportKind, elements: int, rounds: int, folder: Path) -> dict[str, Any]:
    """The figures of one transport."""
    sizes = {placements.PARAMETERS: elements, placements.BUFFERS_FLOAT32: PROBE_ELEMENTS}
    job = parse_job(JOB, assignments=[HEARTBEAT, PLAIN])
    load = Load()
    with LoneShard(job, folder, kind, sizes) as shard, _under_load(shard, sizes, load):
        memory_before = shard.memory_bytes()
        quiet = _quiet(2.0)
        store = stores.in_folder(folder / "checkpoints")
        written = [_checkpoint(shard, store, number) for number in range(1, rounds + 1)]
        memory_after = shard.memory_bytes()
    busy = [wait for _, first, end in written for wait in load.waits_between(first, end)]
    size = written[0][0].bytes
    plain = _plain_write(folder / "plain", size)
    seconds = statistics.median(end - first for _, first, end in written)
    return {
        "file_bytes": size,
        "seconds": seconds,
        "bytes_per_second": size / seconds,
        "plain_write_bytes_per_second": size / plain,
        "share_of_plain_write": plain / seconds,
        "blocking_seconds_of_the_shard": max(result.blocking_seconds for result, _, _ in written),
        "longest_wait_of_a_client_seconds": max(busy),
        "longest_wait_without_checkpoint_seconds": max(load.waits_between(*quiet)),
        "median_wait_of_a_client_seconds": statistics.median(busy),
        "pushes_per_second": statistics.median(
            load.pushes_per_second(first, end) for _, first, end in written
        ),
        "pushes_per_second_without_checkpoint": load.pushes_per_second(*quiet),
        "peak_memory_bytes_before": memory_before,
        "peak_memory_bytes_after": memory_after,
    }


def _quiet(seconds: float) -> tuple[float, float]:
    first = time.perf_counter()
    time.sleep(seconds)
    return first, time.perf_counter()


def _checkpoint(shard: LoneShard, store: Store, number: int) -> tuple[ShardWritten, float, float]:
    """Command one; the shard's answer, and when it was commanded and answered."""
    staging = store.begin(number)
    first = time.perf_counter()
    result = shard.command(Checkpoint(number=number, folder=str(folder_of(staging))))
    end = time.perf_counter()
    if not isinstance(result, ShardWritten):
        message = f"the shard wrote no checkpoint: {result}"
        raise TypeError(message)
    found = part_file.digest_of(folder_of(staging) / names.part_file(0))
    assert (found.bytes, found.hash) == (result.bytes, result.hash)
    store.abandon(number)
    return result, first, end


def _plain_write(path: Path, size: int) -> float:
    """Seconds for writing and syncing as many bytes, without anything else."""
    piece = np.random.default_rng(0).bytes(4 << 20)
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for first in range(0, size, len(piece)):
            file.write(piece[: size - first])
        os.fsync(file.fileno())
    return time.perf_counter() - began


@contextmanager
def _under_load(shard: LoneShard, sizes: dict[Vector, int], load: Load) -> Iterator[None]:
    """Replica 0 has uploaded and pushes, replica 1 fetches a few bytes; until the block ends."""
    ended = threading.Event()
    ready = threading.Barrier(3)
    threads = [
        threading.Thread(target=_push, args=(shard, sizes, load, ready, ended)),
        threading.Thread(target=_probe, args=(shard, load, ready, ended)),
    ]
    for thread in threads:
        thread.start()
    ready.wait(120)
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


def _push(
    shard: LoneShard,
    sizes: dict[Vector, int],
    load: Load,
    ready: threading.Barrier,
    ended: threading.Event,
) -> None:
    config = shard.client_config(0)
    memory = config.transport.memory("replica-0-i1")
    client = PushClient(config)
    values = {vector: memory.allocate(vector.name, 4 * count) for vector, count in sizes.items()}
    gradient = values[placements.PARAMETERS]
    client.upload(values, [0])
    np.frombuffer(gradient.view, np.float32)[:] = 1e-3
    client.push(Push(sequence=1, gradient=gradient))
    ready.wait(120)
    sequence = 1
    while not ended.is_set():
        sequence += 1
        client.push(Push(sequence=sequence, gradient=gradient))
        load.pushes.append(time.perf_counter())
    _close(client, config.transport.close, memory)


def _probe(shard: LoneShard, load: Load, ready: threading.Barrier, ended: threading.Event) -> None:
    config = shard.client_config(1)
    memory = config.transport.memory("replica-1-i1")
    client = FetchClient(config)
    into = {placements.BUFFERS_FLOAT32: memory.allocate("probe", 4 * PROBE_ELEMENTS)}
    ready.wait(120)
    while not ended.is_set():
        began = time.perf_counter()
        client.fetch(into)
        load.waits.append((began, time.perf_counter() - began))
        ended.wait(0.001)
    _close(client, config.transport.close, memory)


def _close(client: PushClient | FetchClient, transport: Any, memory: Memory) -> None:
    client.close()
    transport()
    memory.close()


if __name__ == "__main__":
    main()
