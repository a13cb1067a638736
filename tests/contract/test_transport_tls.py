"""Encrypted connections: who may connect, and as what."""

import os
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from builders import forging, issuing
from builders.transports import (
    PATIENCE,
    a_config,
    a_header,
    credentials,
    meet,
    must_be_asked,
    must_receive,
    opened,
)
from disttrain.job.credentials import Credentials
from disttrain.transport import tls
from disttrain.transport.config import Limits, TransportKind
from disttrain.transport.errors import InvalidCredentials, Refusal
from disttrain.transport.header import Reason, Role, Verb
from disttrain.transport.interface import Channel, Listener, Transport
from disttrain.transport.tcp import TcpTransport

STRANGE = issuing.by_role("job-1", ["replica", "shard", "coordinator"])
"""Of another authority that says it is this job's."""


def forged(role: Role) -> Credentials:
    """Its holder has the key; only the signature is not the authority's."""
    own = credentials()[role]
    return replace(own, certificate=forging.certificate(own.certificate))


def a_transport(
    role: Role, shown: Credentials | None = None, **settings: Any
) -> AbstractContextManager[Transport]:
    shown = shown or credentials()[role]
    return opened(a_config(TransportKind.TCP, role=role, credentials=shown, **settings))


@pytest.fixture
def listener() -> Iterator[Listener]:
    with a_transport(Role.COORDINATOR) as transport:
        yield transport.listen("tcp://127.0.0.1:0")


def is_heard(channel: Channel, listener: Listener, **fields: Any) -> bool:
    channel.send(a_header(Verb.CONTROL_REQUEST, **fields))
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        assert channel.receive(0.0) is None
        if listener.receive(0.01) is not None:
            return True
    return False


def test_a_certificate_speaks_as_its_role(listener: Listener) -> None:
    with a_transport(Role.REPLICA) as transport:
        channel = transport.connect(listener.address)
        meet(channel, listener)
        payload = os.urandom(200_000)
        channel.send(a_header(Verb.CONTROL_REQUEST), payload)
        request = must_be_asked(listener)
        assert request.role is Role.REPLICA
        assert request.payload == payload
        assert listener.reply(request, a_header(Verb.CONTROL_REPLY), b"yes")
        assert bytes(must_receive(channel).payload) == b"yes"


def test_the_longest_chunk_and_the_longest_answer_pass() -> None:
    longest = Limits().payload_bytes
    with a_transport(Role.SHARD) as serving, a_transport(Role.REPLICA) as sending:
        listener = serving.listen("tcp://127.0.0.1:0")
        channel = sending.connect(listener.address, Role.SHARD)
        meet(channel, listener)
        channel.send(a_header(Verb.CONTROL_REQUEST), bytes(TcpTransport.chunk_bytes))
        request = None
        while request is None:
            assert channel.receive(0.0) is None
            request = listener.receive(0.01)
        assert listener.reply(request, a_header(Verb.CONTROL_REPLY), bytes(longest))
        message, end = None, time.monotonic() + PATIENCE
        while message is None and time.monotonic() < end:
            assert listener.receive(0.0) is None
            message = channel.receive(0.01)
        assert message is not None
        assert message.payload.nbytes == longest


def test_a_certificate_that_speaks_as_another_role_is_refused(listener: Listener) -> None:
    with a_transport(Role.REPLICA) as transport:
        channel = transport.connect(listener.address)
        meet(channel, listener)
        channel.send(a_header(Verb.CONTROL_REQUEST, role=Role.SHARD))
        assert listener.receive(0.2) is None
        assert listener.refused[Refusal.ROLE] == 1
        answer = must_receive(channel)
        assert answer.header.reason == Reason.NOT_ALLOWED
        assert b"REPLICA speaks as SHARD" in bytes(answer.payload)


@pytest.mark.parametrize(
    ("role", "shown"),
    [
        (Role.REPLICA, STRANGE["replica"]),
        (Role.REPLICA, replace(STRANGE["replica"], authority=credentials()[Role.SHARD].authority)),
        (Role.REPLICA, forged(Role.REPLICA)),
        (Role.COORDINATOR, credentials()[Role.COORDINATOR]),
        (Role.REPLICA, issuing.by_role("job-2")["replica"]),
    ],
    ids=[
        *("another authority", "another authority, which believes this one"),
        *("a forged certificate", "a second coordinator", "another job"),
    ],
)
def test_strangers_are_never_heard(listener: Listener, role: Role, shown: Credentials) -> None:
    with a_transport(role, shown) as transport:
        assert not is_heard(transport.connect(listener.address), listener, role=role)
    assert set(listener.refused) <= {Refusal.HANDSHAKE, Refusal.CERTIFICATE, Refusal.ROLE}
    assert listener.refused


def test_a_job_of_the_same_authority_is_another_job(listener: Listener) -> None:
    with a_transport(Role.REPLICA, job_uid="job-2") as transport:
        assert not is_heard(transport.connect(listener.address), listener)
    # Not even greeted.
    assert set(listener.refused) == {Refusal.HANDSHAKE}


def test_a_client_speaks_to_nobody_but_the_role_it_means() -> None:
    with a_transport(Role.SHARD) as serving, a_transport(Role.REPLICA) as transport:
        shard = serving.listen("tcp://127.0.0.1:0")
        assert not is_heard(transport.connect(shard.address, Role.COORDINATOR), shard)
        assert is_heard(transport.connect(shard.address, Role.SHARD), shard)


@pytest.mark.parametrize("shown", [STRANGE["coordinator"], forged(Role.COORDINATOR)])
def test_a_client_speaks_to_no_false_listener(shown: Credentials) -> None:
    with (
        a_transport(Role.COORDINATOR, shown) as false,
        a_transport(Role.REPLICA) as transport,
    ):
        listener = false.listen("tcp://127.0.0.1:0")
        assert not is_heard(transport.connect(listener.address), listener)


def test_nothing_older_than_tls_1_3_is_spoken() -> None:
    for context in (tls.server_context, tls.client_context):
        made = context(credentials()[Role.SHARD])
        assert made.minimum_version is ssl.TLSVersion.TLSv1_3
        assert made.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("field", ["certificate", "key", "authority"])
def test_credentials_that_cannot_be_used_are_named_without_their_key(field: str) -> None:
    wrong = replace(credentials()[Role.SHARD], **{field: "no PEM"})
    with pytest.raises(InvalidCredentials, match="cannot be used") as raised:
        tls.server_context(wrong)
    assert credentials()[Role.SHARD].key[40:80] not in str(raised.value)


def test_unix_sockets_are_not_encrypted(tmp_path: Any) -> None:
    address = f"ipc://{tmp_path}/listener"
    plain = opened(a_config(TransportKind.TCP, role=Role.REPLICA))
    with a_transport(Role.SHARD) as serving, plain as transport:
        listener = serving.listen(address)
        assert is_heard(transport.connect(address, Role.SHARD), listener)
