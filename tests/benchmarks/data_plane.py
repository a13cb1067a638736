"""Push + apply (Adagrad) + fetch of all parameters, beside other ways to move the same bytes.

    .venv/bin/python tests/benchmarks/data_plane.py [--quick]

The finiteness check is on. Rates are payload (push + fetch) of all replicas per
second: medians of interleaved rounds. Only ratios inside one run mean anything.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import zmq

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import free_port, issuing, placements, shard_process, transfers
from builders.report import Bar, print_report
from builders.shard_process import ShardPlan, ShardProcess
from disttrain.job.credentials import Credentials
from disttrain.transport.config import TransportKind
from disttrain.transport.malloc import MALLOC_ENVIRONMENT

LARGE, SMALL = 42_000_000 // 262_144 * 262_144, 4_000_000 // 262_144 * 262_144
"""Parameters; whole pieces of 1 MiB."""
GIGABYTE = 1e9
_ROUND_SECONDS = 120


class Contender:
    """Some processes that do a round together."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self.nbytes = nbytes
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self._pipes: list[Connection] = []
        self._others: list[psutil.Process] = []

    def add(self, context: ForkServerContext, target: Callable[..., None], *args: object) -> None:
        """Start a worker; `wait_ready` afterwards."""
        ours, theirs = context.Pipe()
        process = context.Process(target=target, args=(theirs, *args), daemon=True)
        process.start()
        theirs.close()
        self._pipes.append(ours)

    def watch(self, pid: int | None) -> None:
        """Count the CPU time of this process as well."""
        self._others.append(psutil.Process(pid))

    def wait_ready(self) -> None:
        """Raises TimeoutError or EOFError if a worker did not get there."""
        for pipe in self._pipes:
            _answer(pipe)

    def round(self) -> None:
        """One round of all workers at once; the slowest counts."""
        before = self._cpu_of_others()
        for pipe in self._pipes:
            pipe.send("go")
        answers = [_answer(pipe) for pipe in self._pipes]
        self.seconds.append(max(seconds for seconds, _ in answers))
        own = sum(busy for _, busy in answers)
        self.cpu_seconds.append(own + self._cpu_of_others() - before)

    def forget_rounds(self) -> None:
        """After the warm-up."""
        self.seconds.clear()
        self.cpu_seconds.clear()

    @property
    def rate(self) -> float:
        """GB per second."""
        return self.nbytes / GIGABYTE / statistics.median(self.seconds)

    @property
    def cpu_per_gigabyte(self) -> float:
        """CPU seconds of all its processes."""
        return sum(self.cpu_seconds) / len(self.cpu_seconds) / (self.nbytes / GIGABYTE)

    def end(self) -> None:
        """Let the workers end."""
        for pipe in self._pipes:
            try:
                pipe.send("end")
            except OSError:
                continue

    def _cpu_of_others(self) -> float:
        times = [process.cpu_times() for process in self._others]
        return sum(time.user + time.system for time in times)


def _answer(pipe: Connection) -> Any:
    if not pipe.poll(_ROUND_SECONDS):
        message = f"a worker said nothing for {_ROUND_SECONDS} s"
        raise TimeoutError(message)
    return pipe.recv()


class Field:
    """Makes contenders and measures them beside one another."""

    def __init__(self, context: ForkServerContext, elements: int, rounds: int) -> None:
        self.elements = elements
        self._context = context
        self._rounds = rounds
        self._contenders: list[Contender] = []
        self._shards: list[ShardProcess] = []
        self._servers: list[BaseProcess] = []
        self._folder = tempfile.TemporaryDirectory()

    def disttrain(
        self,
        kind: TransportKind,
        shards: int,
        replicas: int,
        *,
        encrypted: bool = False,
        narrow: bool = False,
    ) -> None:
        """Shards with Adagrad and replicas that push and fetch; `narrow`: as bfloat16."""
        wire = "tls" if encrypted else kind.value
        name = f"{wire} {shards} shards {replicas} replicas" + narrow * " bfloat16"
        issued = issuing.by_role(shard_process.JOB) if encrypted else None
        worker = transfers.narrow_worker if narrow else transfers.replica_worker
        contender = Contender(name, self._nbytes(replicas) // (1 + narrow))
        started = [
            shard_process.start(self._plan(kind, index, shards, replicas, issued))
            for index in range(shards)
        ]
        self._shards += started
        for shard in started:
            contender.watch(shard.pid)
        for index in range(replicas):
            sender = (index, 1)
            contender.add(self._context, worker, kind, started, sender, self.elements)
        self._take(contender)

    def raw(self, pairs: int) -> None:
        """Plain sockets without any work."""
        contender = Contender(f"raw socket {pairs} pairs", self._nbytes(pairs))
        for _ in range(pairs):
            port, nbytes = str(free_port.find()), 4 * self.elements
            server = self._context.Process(
                target=transfers.raw_server, args=(port, nbytes), daemon=True
            )
            server.start()
            self._servers.append(server)
            contender.watch(server.pid)
            contender.add(self._context, transfers.raw_worker, port, nbytes)
        self._take(contender)

    def bare(self, *, encrypted: bool = False) -> None:
        """The same work over pyzmq without DistTrain, plain or under CURVE."""
        name = "bare pyzmq under CURVE" if encrypted else "bare pyzmq"
        contender, port = Contender(name, self._nbytes(1)), free_port.find()
        keys = zmq.curve_keypair() if encrypted else None
        server = self._context.Process(
            target=transfers.bare_shard, args=(port, self.elements, keys), daemon=True
        )
        server.start()
        self._servers.append(server)
        contender.watch(server.pid)
        contender.add(self._context, transfers.bare_worker, port, self.elements, keys)
        self._take(contender)

    def pair(self, name: str, worker: Callable[..., None]) -> None:
        """Two workers that meet at a port."""
        contender, port = Contender(name, self._nbytes(1)), free_port.find()
        for rank in range(2):
            contender.add(self._context, worker, port, rank, self.elements)
        self._take(contender)

    def bound(self) -> None:
        """One Adagrad pass and one copy."""
        contender = Contender("bound", self._nbytes(1))
        contender.add(self._context, transfers.bound_worker, self.elements)
        self._take(contender)

    def measure(self) -> dict[str, Contender]:
        """Rounds in turn, after one to warm up."""
        for number in range(self._rounds + 1):
            for contender in self._contenders:
                if number == 1:
                    contender.forget_rounds()
                contender.round()
        return {contender.name: contender for contender in self._contenders}

    def close(self) -> None:
        """End every process."""
        for contender in self._contenders:
            contender.end()
        for shard in self._shards:
            shard.kill()
        for server in self._servers:
            server.kill()
            server.join()
        self._folder.cleanup()

    def _take(self, contender: Contender) -> None:
        try:
            contender.wait_ready()
        except (EOFError, TimeoutError) as error:
            print(f"{contender.name} does not work here: {error}", file=sys.stderr)
            return
        self._contenders.append(contender)

    def _nbytes(self, replicas: int) -> int:
        return 2 * 4 * self.elements * replicas

    def _plan(
        self,
        kind: TransportKind,
        index: int,
        shards: int,
        replicas: int,
        issued: dict[str, Credentials] | None,
    ) -> ShardPlan:
        path = f"ipc://{self._folder.name}/{len(self._contenders)}-{index}"
        return ShardPlan(
            kind=kind,
            address="tcp://127.0.0.1:0" if kind is TransportKind.TCP else path,
            elements={placements.PARAMETERS: self.elements},
            optimizer={"adagrad": {"learning_rate": 0.01}},
            index=index,
            shards=shards,
            senders=[(sender, 1) for sender in range(replicas)],
            issued=issued,
        )


@contextmanager
def a_field(context: ForkServerContext, elements: int, rounds: int) -> Iterator[Field]:
    field = Field(context, elements, rounds)
    try:
        yield field
    finally:
        field.close()


def measure_all(context: ForkServerContext, rounds: int, large: int) -> dict[str, dict[str, Any]]:
    """Three groups, each measured by itself: 1 x 1, 2 x 2, and a small model."""
    groups: dict[str, dict[str, Any]] = {}
    with a_field(context, large, rounds) as field:
        field.raw(1)
        field.disttrain(TransportKind.TCP, 1, 1)
        field.disttrain(TransportKind.TCP, 1, 1, encrypted=True)
        field.disttrain(TransportKind.SHARED_MEMORY, 1, 1)
        for encrypted in (False, True):
            field.disttrain(TransportKind.TCP, 1, 1, encrypted=encrypted, narrow=True)
        field.disttrain(TransportKind.SHARED_MEMORY, 1, 1, narrow=True)
        field.bound()
        field.bare()
        field.bare(encrypted=True)
        field.pair("gloo", transfers.gloo_worker)
        field.pair("rpc", transfers.rpc_worker)
        groups["large"] = figures(field.measure())
    with a_field(context, large, rounds) as field:
        field.raw(2)
        for kind in (TransportKind.TCP, TransportKind.SHARED_MEMORY):
            field.disttrain(kind, 2, 2)
        field.disttrain(TransportKind.TCP, 1, 2)
        field.disttrain(TransportKind.TCP, 2, 1)
        groups["large, two"] = figures(field.measure())
    with a_field(context, min(SMALL, large), rounds * 3) as field:
        field.raw(1)
        for kind in (TransportKind.TCP, TransportKind.SHARED_MEMORY):
            field.disttrain(kind, 1, 1)
        field.bare()
        groups["small"] = figures(field.measure())
    return groups


def figures(contenders: dict[str, Contender]) -> dict[str, Any]:
    """Rates, and CPU seconds per GB where every process was counted."""
    return {
        name: {
            "gigabytes_per_second": round(contender.rate, 3),
            "cpu_seconds_per_gigabyte": round(contender.cpu_per_gigabyte, 3),
            "seconds": round(statistics.median(contender.seconds), 4),
            "gigabytes": contender.nbytes / GIGABYTE,
        }
        for name, contender in contenders.items()
    }


def bars(groups: dict[str, dict[str, Any]]) -> list[Bar]:
    """Ratios inside one group."""

    def ratio(group: str, name: str, to: str) -> float:
        rows = groups[group]
        if name not in rows or to not in rows:
            return float("nan")
        return float(rows[name]["gigabytes_per_second"] / rows[to]["gigabytes_per_second"])

    tcp, raw = "tcp 1 shards 1 replicas", "raw socket 1 pairs"
    shared = "sharedMemory 1 shards 1 replicas"
    cpu = groups["large"][tcp]["cpu_seconds_per_gigabyte"]
    return [
        Bar("TCP 1x1 to a raw socket", ratio("large", tcp, raw), 0.75),
        Bar("TCP 1x1 to torch.distributed.rpc", ratio("large", tcp, "rpc"), 1.9),
        Bar("TCP 1x1 CPU seconds per GB", float(cpu), 0.65, at_least=False),
        Bar(
            "TLS 1x1 to bare pyzmq under CURVE",
            ratio("large", "tls 1 shards 1 replicas", "bare pyzmq under CURVE"),
            1.2,
        ),
        Bar(
            "TCP 2x2 to two raw pairs",
            ratio("large, two", "tcp 2 shards 2 replicas", "raw socket 2 pairs"),
            0.45,
        ),
        Bar("TCP 1x1 to a raw socket, 4 million parameters", ratio("small", tcp, raw), 0.65),
        Bar("shared memory 1x1 to a raw socket", ratio("large", shared, raw), 2.0),
        Bar("shared memory 1x1 to Adagrad + copy", ratio("large", shared, "bound"), 0.8),
    ]


def load_average() -> float:
    """Processes that wanted a core in the last minute, those of others included."""
    return round(os.getloadavg()[0], 2)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="that it runs, not how fast")
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args(arguments)
    if not os.environ.keys() >= MALLOC_ENVIRONMENT.keys():
        # glibc reads these when a program starts.
        environment = os.environ | MALLOC_ENVIRONMENT
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)  # noqa: S606  no shell
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "builders.transfers"])
    rounds, large = (2, SMALL) if chosen.quick else (chosen.rounds, LARGE)
    began, groups = load_average(), measure_all(context, rounds, large)
    settings = {"rounds": rounds, "elements": {"large": large, "small": min(SMALL, large)}}
    load = {"load_average": {"before": began, "after": load_average()}}
    print_report("data_plane", settings | load | {"groups": groups}, bars(groups))


if __name__ == "__main__":
    main(sys.argv[1:])
