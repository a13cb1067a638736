"""A listener whose address swallows packets: a pod that is gone, before its name means another."""

import socket
from collections.abc import Iterator

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from builders.transports import a_config
from disttrain.transport.config import TransportKind
from disttrain.transport.header import Role
from disttrain.transport.sockets import Sockets

PATIENCE_MS = 30_000
"""The system itself would wait for two minutes."""


@pytest.fixture
def silent_address() -> Iterator[str]:
    """Where attempts to connect are dropped: the queue of those who wait to be accepted is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.settimeout(0)
            one.connect_ex(listener.getsockname())
            waiting.append(one)
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        for one in waiting:
            one.close()


def test_an_attempt_that_nobody_answers_is_soon_followed_by_another(silent_address: str) -> None:
    sockets = Sockets(a_config(TransportKind.TCP, role=Role.REPLICA))
    connection = sockets.connect(silent_address, Role.COORDINATOR)
    monitor = connection.raw.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED)
    try:
        assert monitor.poll(PATIENCE_MS), "it waits for the first attempt"
        assert recv_monitor_message(monitor)["event"] == zmq.EVENT_CONNECT_RETRIED
    finally:
        connection.raw.disable_monitor()
        monitor.close(linger=0)
        sockets.close()
