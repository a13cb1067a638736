"""A shard in a process of its own, without a coordinator: what a test tells it at the start holds."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from disttrain.coordinator.messages import ShardAddress
from disttrain.job.optimizer import Optimizer
from disttrain.parameter_server import assembly
from disttrain.parameter_server.acknowledged import AcknowledgedFile
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.serving import Serving
from disttrain.parameter_server.state import ShardState
from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role, Vector
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

    def to_json(self) -> str:
        fields = self.__dict__ | {"elements": {int(v): n for v, n in self.elements.items()}}
        return json.dumps(fields)

    @staticmethod
    def from_json(text: str) -> "ShardPlan":
        fields = json.loads(text)
        elements = {Vector(int(vector)): n for vector, n in fields["elements"].items()}
        kind = TransportKind(fields["kind"])
        return ShardPlan(**(fields | {"elements": elements, "kind": kind}))


@dataclass
class ShardProcess:
    """A started process and where it listens."""

    plan: ShardPlan
    process: "subprocess.Popen[str]"
    address: str = field(default="")

    @property
    def directory_entry(self) -> ShardAddress:
        return ShardAddress(
            index=self.plan.index, incarnation=self.plan.incarnation, address=self.address
        )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


def start(plan: ShardPlan) -> ShardProcess:
    environment = os.environ | MALLOC_ENVIRONMENT | {"PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, __file__, plan.to_json()],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address, "the shard process ended at once"
    return ShardProcess(plan, process, address)


@contextmanager
def running(plans: Sequence[ShardPlan]) -> Iterator[list[ShardProcess]]:
    shards: list[ShardProcess] = []
    try:
        shards.extend(start(plan) for plan in plans)
        yield shards
    finally:
        for shard in shards:
            shard.kill()
            if shard.process.stdout is not None:
                shard.process.stdout.close()


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
    shard = assembly.build(state, rule, records)
    shard.configure(plan.elements, plan.shards, plan.chunk_bytes or transport.chunk_bytes)
    for sender, incarnation in plan.senders:
        shard.admit(SenderLife(sender, incarnation))
    serving = Serving(listener, shard)
    told(listener.address)
    while True:
        if not serving.serve_waiting():
            transport.wait([listener], 1.0)


if __name__ == "__main__":
    main(ShardPlan.from_json(sys.argv[1]), lambda address: print(address, flush=True))  # noqa: T201
