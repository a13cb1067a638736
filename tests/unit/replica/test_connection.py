"""How a replica lets go of the parameter server."""

from disttrain.replica import connection
from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.header import Role


def test_whoever_closes_waits_longer_than_a_send_may_block() -> None:
    config = TransportConfig(kind=TransportKind.TCP, job_uid="job", role=Role.REPLICA)
    assert config.send_timeout.total_seconds() < connection.CLOSE_SECONDS
