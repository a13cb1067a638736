"""Somebody who talks to the processes of a job, with whatever credentials."""

from contextlib import AbstractContextManager, suppress

from builders.transports import a_config, opened
from disttrain.job.credentials import Credentials
from disttrain.transport.config import TransportKind
from disttrain.transport.errors import TransportTimeout
from disttrain.transport.header import EMPTY, Header, Role, Verb
from disttrain.transport.interface import Message, Transport

_ANSWER_SECONDS = 20.0


def a_peer(uid: str, credentials: Credentials | None) -> AbstractContextManager[Transport]:
    """The transport of one who knows the job's uid and has these credentials, or none."""
    kind, role = TransportKind.TCP, Role.REPLICA
    return opened(a_config(kind, job_uid=uid, role=role, credentials=credentials, send_timeout=1.0))


def hears_nothing(uid: str, credentials: Credentials | None, address: str, listener: Role) -> bool:
    """Whether a message to a process that answers all whom it hears stays unanswered."""
    with a_peer(uid, credentials) as stranger:
        channel = stranger.connect(address, listener)
        # Its connection is closed before or after the message could leave.
        with suppress(TransportTimeout):
            channel.send(*a_message(Verb.CONTROL_COMMAND, Role.REPLICA, b"{}"))
        heard = channel.receive(1.0)
        channel.close()
    return heard is None


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
