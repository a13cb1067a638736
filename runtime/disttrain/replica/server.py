"""A replica's process: what `disttrain run` and a pod start."""

import os
import signal
import sys
import uuid

import torch

from disttrain.coordinator.client import CoordinatorClient
from disttrain.coordinator.fields import MemberId
from disttrain.coordinator.messages import Join
from disttrain.launch.config import LaunchConfig
from disttrain.parameter_server.client import ClientConfig, FetchClient, PushClient
from disttrain.parameter_server.messages import Identity
from disttrain.replica import ledger, prepared
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.halt import Halt
from disttrain.replica.ledger import Ledger
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
_JOIN_SECONDS = 600.0
"""A coordinator that crashed may be in its back-off."""
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
    client = _client_config(ready, transport, coordinator, joined.member)
    connection = _connect(config, ready, transport, client, halt)
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
    config: LaunchConfig, ready: Prepared, transport: Transport, client: ClientConfig, halt: Halt
) -> Connection:
    spec = config.job.spec
    memory = transport.memory(f"{config.process}-i{client.identity.incarnation}")
    model = FlatModel(ready.model, memory, ready.device, outgoing_buffers=outgoing_buffers(spec))
    shards = spec.parameter_server.shards
    sides = Sides(push=PushClient(client, shards), fetch=FetchClient(client, shards))
    path = ledger.path_of(config.run_folder / "ledger", config.index, client.identity.incarnation)
    return Connection(model, sides, halt, Ledger(path, records_steps=spec.record))


def _client_config(
    ready: Prepared, transport: Transport, coordinator: CoordinatorClient, member: MemberId
) -> ClientConfig:
    layout = ready.tensors.layout
    return ClientConfig(
        transport=transport,
        identity=Identity(index=member.index, incarnation=member.incarnation),
        directory=lambda: coordinator.shards,
        sizes={vector: layout.elements(vector) for vector in ready.tensors.vectors},
    )
