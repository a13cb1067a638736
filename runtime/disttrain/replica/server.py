"""A replica's process: what `disttrain run` and a pod start."""

import os
import signal
import sys
import uuid

import torch

from disttrain.coordinator.client import CoordinatorClient
from disttrain.coordinator.messages import Join
from disttrain.launch.config import LaunchConfig
from disttrain.parameter_server.client import ShardClient
from disttrain.parameter_server.messages import Identity
from disttrain.replica import prepared
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.halt import Halt
from disttrain.replica.prepared import Prepared
from disttrain.replica.replica import Replica, outgoing_buffers
from disttrain.replica.served_metrics import ServedMetrics
from disttrain.telemetry import logs
from disttrain.transport.config import TransportConfig
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role
from disttrain.transport.interface import Transport

LOG = logs.get(__name__)

_SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter. The default, 5 ms, is several small steps."""
_JOIN_SECONDS = 60.0
_FLUSH_SECONDS = 2.0


def main(config: LaunchConfig) -> int:
    """Run the replica until it is told to end; the exit code. Raises FinalError for a bad task."""
    torch.set_num_threads(config.threads)
    sys.setswitchinterval(_SWITCH_SECONDS)
    ready = prepared.prepare(config)
    transport = open_transport(
        TransportConfig(kind=config.transport, job_uid=config.job_uid, role=Role.REPLICA)
    )
    coordinator = CoordinatorClient(
        lambda: transport.connect(config.coordinator_address),
        Role.REPLICA,
        config.job.spec.coordinator.heartbeat_seconds,
    )
    try:
        return _live(config, ready, transport, coordinator)
    finally:
        coordinator.flush(_FLUSH_SECONDS)
        coordinator.close()
        transport.close()


def _live(
    config: LaunchConfig, ready: Prepared, transport: Transport, coordinator: CoordinatorClient
) -> int:
    served = ServedMetrics(config.metrics_address)
    joined = coordinator.join(
        _join(config.index, ready, served.address), served.latest_report, _JOIN_SECONDS
    )
    halt = Halt()
    connection = _connect(config, ready, transport, coordinator, joined, halt)
    try:
        replica = Replica(config.job.spec, ready, coordinator, joined, connection, halt)
        served.source = replica.report
        signal.signal(signal.SIGTERM, lambda *_: replica.leave())
        return replica.run()
    finally:
        connection.close()


def _join(index: int, ready: Prepared, metrics_address: str) -> Join:
    return Join(
        role=Role.REPLICA,
        index=index,
        instance=uuid.uuid4().hex,
        pid=os.getpid(),
        metrics_address=metrics_address,
        layout=ready.tensors.layout,
        train_samples=ready.train.count,
        test_samples=ready.test.count,
    )


def _connect(
    config: LaunchConfig,
    ready: Prepared,
    transport: Transport,
    coordinator: CoordinatorClient,
    joined: Joined,
    halt: Halt,
) -> Connection:
    member = joined.member
    memory = transport.memory(f"{config.process}-i{member.incarnation}")
    client = ShardClient(
        transport,
        Identity(index=member.index, incarnation=member.incarnation),
        {v: ready.tensors.layout.elements(v) for v in ready.tensors.vectors},
        config.job.spec.parameter_server.shards,
        lambda: coordinator.shards,
    )
    spec = config.job.spec
    model = FlatModel(ready.model, memory, ready.device, outgoing_buffers=outgoing_buffers(spec))
    return Connection(model, Sides(push=client.push_side(), fetch=client.fetch_side()), halt)
