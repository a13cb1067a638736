"""What a coordinator that is away costs replicas: push and fetch beside those of a job with one.

Two real shard processes, and for each one client that pushes 4 MB and fetches them, again and
again, in turn. The coordinator of one of them ends, for longer than the queue towards it has room
for the shard's repeated words.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from disttrain.transport.interface import Buffer

ELEMENTS = 1 << 20
MOST_RATIO = 1.2
LOOKS_PER_SECOND = 20
TURN_SECONDS = 0.5
_PAUSE_SECONDS = 0.002
"""Between two rounds, so that the shard, too, has time for the coordinator."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="away for three seconds")
    arguments = parser.parse_args()
    away = 3.0 if arguments.quick else 75.0
    figures: dict[str, Any] = {"parameters": ELEMENTS, "seconds_away": away}
    bars: list[Bar] = []
    for kind in (TransportKind.SHARED_MEMORY, TransportKind.TCP):
        with tempfile.TemporaryDirectory() as folder:
            found = measure(kind, Path(folder), away)
        figures[kind.value] = found
        bars.append(Bar(f"{kind.value}: ratio", found["ratio"], MOST_RATIO, at_least=False))
    print_report("coordinator_away", figures, bars)


def measure(kind: TransportKind, folder: Path, away: float) -> dict[str, float]:
    """The figures of one transport."""
    with (
        _shard(kind, folder / "led") as led,
        _shard(kind, folder / "alone") as alone,
        _client(led) as of_led,
        _client(alone) as of_alone,
    ):
        alone.lose_coordinator()
        beside, without = in_turn(of_led, of_alone, away)
    usual, now = statistics.median(looks(beside)), statistics.median(looks(without))
    return {
        "seconds_with_coordinator": usual,
        "seconds_without": now,
        "ratio": now / usual,
        "longest_with_coordinator": max(end - first for first, end in beside),
        "longest_without": max(end - first for first, end in without),
    }


def _shard(kind: TransportKind, folder: Path) -> LoneShard:
    folder.mkdir()
    sizes = {placements.PARAMETERS: ELEMENTS}
    return LoneShard(parse_job(SMALL, assignments=[PLAIN]), folder, kind, sizes)


@contextmanager
def _client(shard: LoneShard) -> Iterator["Client"]:
    """A client of this shard, which has been used for a moment."""
    config = shard.client_config(0)
    memory = config.transport.memory("replica-0-i1")
    buffer = memory.allocate("gradient", 4 * ELEMENTS)
    client = Client(PushClient(config), FetchClient(config), buffer)
    client.push.upload({placements.PARAMETERS: buffer}, [0])
    np.frombuffer(buffer.view, np.float32)[:] = 1e-3
    client.rounds(TURN_SECONDS)
    try:
        yield client
    finally:
        client.push.close()
        client.fetch.close()
        config.transport.close()
        memory.close()


class Client:
    """One replica's two conversations with the shard, one after the other."""

    def __init__(self, push: PushClient, fetch: FetchClient, buffer: Buffer) -> None:
        self.push = push
        self.fetch = fetch
        self._buffer = buffer
        self._sequence = 0

    def rounds(self, seconds: float) -> list[tuple[float, float]]:
        """Push and fetch for so long: when each round began and ended."""
        found = []
        end = time.perf_counter() + seconds
        while (first := time.perf_counter()) < end:
            self._sequence += 1
            self.push.push(Push(sequence=self._sequence, gradient=self._buffer, samples=1))
            self.fetch.fetch({placements.PARAMETERS: self._buffer})
            found.append((first, time.perf_counter()))
            time.sleep(_PAUSE_SECONDS)
        return found


def in_turn(
    one: Client, other: Client, seconds: float
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The rounds of both: the machine's load of a moment is in those of both."""
    of_one: list[tuple[float, float]] = []
    of_other: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        of_one += one.rounds(TURN_SECONDS / 2)
        of_other += other.rounds(TURN_SECONDS)
        of_one += one.rounds(TURN_SECONDS / 2)
    return of_one, of_other


def looks(rounds: list[tuple[float, float]]) -> list[float]:
    """How long the round took that was under way, at moments of equal distance.

    A mean over rounds would hide the few that take as long as hundreds of others.
    """
    found = []
    at = 0.0
    for first, end in rounds:
        at = max(at, first)
        while at < end:
            found.append(end - first)
            at += 1 / LOOKS_PER_SECOND
    return found


if __name__ == "__main__":
    main()
