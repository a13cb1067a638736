"""Somebody who talks to the processes of a job, with whatever key."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from disttrain.transport.config import CurveKeys, TransportConfig, TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import EMPTY, Header, Role, Verb
from disttrain.transport.interface import Message, Transport

_ANSWER_SECONDS = 20.0


@contextmanager
def a_peer(uid: str, curve: CurveKeys | None) -> Iterator[Transport]:
    """The transport of one who knows the job's uid and has these keys, or none."""
    settings = TransportConfig(
        kind=TransportKind.TCP,
        job_uid=uid,
        role=Role.REPLICA,
        curve=curve,
        send_timeout=timedelta(seconds=1),
    )
    transport = open_transport(settings)
    try:
        yield transport
    finally:
        transport.close()


def a_message(verb: Verb, role: Role, payload: bytes) -> tuple[Header, bytes]:
    """A message in the name of a role."""
    return EMPTY._replace(verb=verb, role=role, sequence=1, count=len(payload)), payload


def answer(
    transport: Transport, address: str, listener: Role, message: tuple[Header, bytes]
) -> Message:
    """What the process at an address says to it."""
    channel = transport.connect(address, listener)
    channel.send(*message)
    found = channel.receive(_ANSWER_SECONDS)
    channel.close()
    assert found is not None
    return found
