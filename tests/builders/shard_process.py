"""A shard in a process of its own, without a coordinator: a test tells it all at the start."""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from builders import downpour_shards, warm_processes
from builders.placements import a_placement
from builders.transports import a_config
from disttrain.coordinator.protocol.messages import ShardAddress
from disttrain.job.credentials import Credentials
from disttrain.job.strategies.downpour import Optimizer
from disttrain.launch import linux
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.serving import Serving
from disttrain.state.placement import Placement
from disttrain.state.vector import Vector
from disttrain.transport.config import TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role

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
    chunk_bytes: int = 0
    """0: the transport's own."""
    issued: Mapping[str, Credentials] | None = None
    """By role; None: nothing is encrypted."""

    @property
    def placement(self) -> Placement:
        """Who holds what, with what the optimizer keeps."""
        kept = tuple(Optimizer.model_validate(self.optimizer).rule.initial_state)
        return a_placement(self.elements, self.shards, kept)


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


def start(plan: ShardPlan) -> ShardProcess:
    """Fork it from a process that has imported torch: that takes milliseconds."""
    context = warm_processes.context()
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(plan, theirs), daemon=True)
    process.start()
    theirs.close()
    assert process.pid is not None
    return ShardProcess(plan, process.pid, ours.recv())


@contextmanager
def running(plans: Sequence[ShardPlan]) -> Iterator[list[ShardProcess]]:
    shards: list[ShardProcess] = []
    try:
        shards.extend(start(plan) for plan in plans)
        yield shards
    finally:
        for shard in shards:
            shard.kill()


def _serve(plan: ShardPlan, told: Connection) -> None:
    linux.end_with_parent(os.getppid(), signal.SIGKILL)
    torch.set_num_threads(1)
    credentials = plan.issued["shard"] if plan.issued else None
    transport = open_transport(
        a_config(plan.kind, job_uid=JOB, role=Role.SHARD, credentials=credentials)
    )
    listener = transport.listen(plan.address)
    state = ShardState(index=plan.index, incarnation=plan.incarnation)
    shard = downpour_shards.build(state, Optimizer.model_validate(plan.optimizer).rule)
    shard.configure(plan.placement, plan.chunk_bytes or transport.chunk_bytes)
    for sender, incarnation in plan.senders:
        shard.admit(SenderIncarnation(sender, incarnation))
    serving = Serving(listener, shard)
    told.send(listener.address)
    while True:
        if not serving.serve_waiting():
            transport.wait([listener], 1.0)
