"""A replica's process: what `disttrain run` and a pod start."""

import os
import signal
import sys
import uuid

import torch

from disttrain.coordinator.errors import JobOver
from disttrain.coordinator.protocol.messages import Join
from disttrain.launch.config import LaunchConfig
from disttrain.launch.exit_code import ExitCode
from disttrain.replica import prepared
from disttrain.replica.membership import JobAddress, Membership
from disttrain.replica.prepared import Prepared
from disttrain.replica.replica import Replica
from disttrain.replica.served_metrics import ServedMetrics
from disttrain.replica.watchdog import Watchdog
from disttrain.telemetry import logs
from disttrain.transport.header import Role

LOG = logs.get(__name__)

_SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter. The default, 5 ms, is several small steps."""


def main(config: LaunchConfig) -> int:
    """Run the replica until it is told to end; the exit code. Raises FinalError for a bad task."""
    torch.set_num_threads(config.threads)
    sys.setswitchinterval(_SWITCH_SECONDS)
    ready = prepared.prepare(config)
    membership = Membership(JobAddress.of(config))
    try:
        return _live(config, ready, membership)
    except JobOver as error:
        LOG.info("came too late", reason=error)
        return ExitCode.COMPLETE
    finally:
        membership.close()


def _live(config: LaunchConfig, ready: Prepared, membership: Membership) -> int:
    served = ServedMetrics(config.metrics_address)
    joined = membership.join(_join(config.index, ready, served.address), served.latest_report)
    connection = membership.connect(joined, ready.model, ready.device)
    try:
        with Watchdog(config.job.spec.replicas.call_timeout_seconds):
            replica = Replica(config.job.spec, ready, membership, joined, connection)
            served.source = replica.report
            served.pushes = connection.pushes.transfers
            served.fetches = connection.fetches.transfers
            served.ledger = connection.ledger
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
