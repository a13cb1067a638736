"""Somebody who talks to the processes of a job, with whatever key."""

from contextlib import AbstractContextManager

from builders.transports import a_config, opened
from disttrain.transport.config import CurveKeys, TransportKind
from disttrain.transport.header import EMPTY, Header, Role, Verb
from disttrain.transport.interface import Message, Transport

_ANSWER_SECONDS = 20.0


def a_peer(uid: str, curve: CurveKeys | None) -> AbstractContextManager[Transport]:
    """The transport of one who knows the job's uid and has these keys, or none."""
    kind, role = TransportKind.TCP, Role.REPLICA
    return opened(a_config(kind, job_uid=uid, role=role, curve=curve, send_timeout=1.0))


def a_message(verb: Verb, role: Role, payload: bytes) -> tuple[Header, bytes]:
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
