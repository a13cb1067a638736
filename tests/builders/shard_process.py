"""A shard in a process of its own, without a coordinator: a test tells it all at the start."""

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from builders import downpour_shards
from builders.placements import a_placement
from disttrain.coordinator.protocol.messages import ShardAddress
from disttrain.job.optimizer import Optimizer
from disttrain.launch import linux
from disttrain.parameter_server.acknowledged import AcknowledgedFile
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.serving import Serving
from disttrain.parameter_server.state import ShardState
from disttrain.state.placement import Placement
from disttrain.state.vector import Vector, parse
from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role
from disttrain.transport.malloc import MALLOC_ENVIRONMENT

JOB = "job-of-a-test"


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """What the process is told."""

    kind: TransportKind
    address: str
    elements: dict[Vector, int]
    optimizer: dict[str, object]
    index: int = 0
    incarnation: int = 1
    shards: int = 1
    senders: Sequence[tuple[int, int]] = ((0, 1),)
    live_replicas: int = 1
    folder: str = ""
    chunk_bytes: int = 0
    """0: the transport's own."""

    @property
    def placement(self) -> Placement:
        """Who holds what, with what the optimizer keeps."""
        kept = Optimizer.model_validate(self.optimizer).rule.kept
        return a_placement(self.elements, self.shards, kept)

    def to_json(self) -> str:
        fields = self.__dict__ | {"elements": {str(v): n for v, n in self.elements.items()}}
        return json.dumps(fields)

    @staticmethod
    def from_json(text: str) -> "ShardPlan":
        fields = json.loads(text)
        elements = {parse(vector): n for vector, n in fields["elements"].items()}
        kind = TransportKind(fields["kind"])
        return ShardPlan(**(fields | {"elements": elements, "kind": kind}))


@dataclass
class ShardProcess:
    """A started process and where it listens."""

    plan: ShardPlan
    pid: int
    address: str

    @property
    def placement(self) -> Placement:
        return self.plan.placement

    @property
    def directory_entry(self) -> ShardAddress:
        return ShardAddress(
            index=self.plan.index, incarnation=self.plan.incarnation, address=self.address
        )

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        end = time.monotonic() + 10
        while Path(f"/proc/{self.pid}").exists() and time.monotonic() < end:
            time.sleep(0.001)


class ForkServer:
    """Imports torch once and forks the shards of all tests: a start costs milliseconds."""

    def __init__(self) -> None:
        environment = os.environ | MALLOC_ENVIRONMENT
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "builders.shard_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        atexit.register(self._process.kill)

    def start(self, plan: ShardPlan) -> ShardProcess:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(plan.to_json() + "\n")
        self._process.stdin.flush()
        words = self._process.stdout.readline().split()
        assert len(words) == 2, "the shard process ended at once"
        return ShardProcess(plan, int(words[0]), words[1])


@functools.cache
def _fork_server() -> ForkServer:
    return ForkServer()


def start(plan: ShardPlan) -> ShardProcess:
    return _fork_server().start(plan)


@contextmanager
def running(plans: Sequence[ShardPlan]) -> Iterator[list[ShardProcess]]:
    shards: list[ShardProcess] = []
    try:
        shards.extend(start(plan) for plan in plans)
        yield shards
    finally:
        for shard in shards:
            shard.kill()


def main(plan: ShardPlan, told: Callable[[str], object]) -> None:
    torch.set_num_threads(1)
    config = TransportConfig(kind=plan.kind, job_uid=JOB, role=Role.SHARD)
    transport = open_transport(config)
    listener = transport.listen(plan.address)
    file = Path(plan.folder) / f"acknowledged-{plan.index}.bin"
    acknowledged = AcknowledgedFile(file) if plan.folder else None
    records = Records(incarnation=plan.incarnation, acknowledged=acknowledged)
    state = ShardState(
        index=plan.index, incarnation=plan.incarnation, live_replicas=plan.live_replicas
    )
    rule = Optimizer.model_validate(plan.optimizer).rule
    shard = downpour_shards.build(state, rule, records)
    shard.configure(plan.placement, plan.chunk_bytes or transport.chunk_bytes)
    for sender, incarnation in plan.senders:
        shard.admit(SenderLife(sender, incarnation))
    serving = Serving(listener, shard)
    told(listener.address)
    while True:
        if not serving.serve_waiting():
            transport.wait([listener], 1.0)


def fork_for_ever() -> None:
    """One plan per line; for each a child, which says its process number and its address."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    linux.end_with_parent(os.getppid(), signal.SIGKILL)
    for line in sys.stdin:
        if os.fork() == 0:
            linux.end_with_parent(os.getppid(), signal.SIGKILL)
            main(
                ShardPlan.from_json(line),
                lambda address: print(os.getpid(), address, flush=True),  # noqa: T201
            )


if __name__ == "__main__":
    fork_for_ever()
