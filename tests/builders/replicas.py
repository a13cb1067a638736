"""A replica's side of the parameter server, for tests: flat buffers and both clients."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from builders.shard_process import JOB, ShardProcess
from builders.shard_thread import ShardThread
from builders.transports import a_config
from disttrain.coordinator.protocol.messages import ShardAddress
from disttrain.holder.values import DTYPES
from disttrain.parameter_server.client import ClientConfig, FetchClient, Identity, PushClient
from disttrain.state.vector import Vector
from disttrain.transport.config import TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role
from disttrain.transport.interface import Buffer, Memory, Transport


@dataclass
class Replica:
    """Both clients, and memory that the transport can send."""

    transport: Transport
    memory: Memory
    pushes: PushClient
    fetches: FetchClient
    identity: Identity

    def buffer(self, values: Tensor) -> Buffer:
        buffer = self.memory.allocate("values", values.numel() * values.element_size())
        if values.numel():
            torch.frombuffer(buffer.view, dtype=values.dtype).copy_(values.flatten())
        return buffer

    def empty(self, vector: Vector, elements: int) -> Buffer:
        return self.memory.allocate("empty", elements * vector.element_bytes)

    def fetch(self, elements: dict[Vector, int]) -> dict[Vector, Tensor]:
        """The values of whole vectors."""
        into = {vector: self.empty(vector, n) for vector, n in elements.items() if n}
        self.fetches.fetch(into)
        return {vector: tensor(buffer, vector).clone() for vector, buffer in into.items()}


def tensor(buffer: Buffer, vector: Vector) -> Tensor:
    return torch.frombuffer(buffer.view, dtype=DTYPES[vector.element_type])


@contextmanager
def replica(
    kind: TransportKind,
    shards: Sequence[ShardProcess] | Sequence[ShardThread],
    index: int = 0,
    incarnation: int = 1,
    directory: Callable[[], Sequence[ShardAddress]] | None = None,
) -> Iterator[Replica]:
    first = shards[0]
    issued = first.plan.issued if isinstance(first, ShardProcess) else None
    credentials = issued["replica"] if issued else None
    transport = open_transport(
        a_config(kind, job_uid=JOB, role=Role.REPLICA, credentials=credentials)
    )
    memory = transport.memory(f"replica-{index}-i{incarnation}")
    identity = Identity(index, incarnation)
    config = ClientConfig(
        transport=transport,
        identity=identity,
        directory=directory or (lambda: [shard.directory_entry for shard in shards]),
        placement=shards[0].placement,
        patience_seconds=60.0,
    )
    with (
        closing(memory),
        closing(transport),
        closing(FetchClient(config)) as fetches,
        closing(PushClient(config)) as pushes,
    ):
        yield Replica(transport, memory, pushes, fetches, identity)
