"""Encrypted connections: who may connect, and as what."""

import os
from collections.abc import Iterator

import pytest
import zmq

from builders.transports import a_config, a_header, must_be_asked, must_receive, opened, until
from disttrain.transport import authentication
from disttrain.transport.config import CurveKeys, Limits, TransportKind
from disttrain.transport.errors import Refusal
from disttrain.transport.header import Reason, Role, Verb
from disttrain.transport.interface import Listener
from disttrain.transport.tcp import TcpTransport

SERVER_PUBLIC, SERVER_SECRET = (key.decode() for key in zmq.curve_keypair())
REPLICA_PUBLIC, REPLICA_SECRET = (key.decode() for key in zmq.curve_keypair())
LISTENER_KEYS = CurveKeys(
    public=SERVER_PUBLIC, secret=SERVER_SECRET, allowed={REPLICA_PUBLIC: Role.REPLICA}
)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with opened(a_config(TransportKind.TCP, curve=LISTENER_KEYS)) as transport:
        yield transport.listen("tcp://127.0.0.1:0")


def client_keys(public: str, secret: str, server_public: str = SERVER_PUBLIC) -> CurveKeys:
    listeners = {Role.COORDINATOR: server_public}
    return CurveKeys(public=public, secret=secret, listeners=listeners)


def test_an_allowed_key_speaks_as_its_role(listener: Listener) -> None:
    keys = client_keys(REPLICA_PUBLIC, REPLICA_SECRET)
    with opened(a_config(TransportKind.TCP, curve=keys)) as transport:
        channel = transport.connect(listener.address)
        payload = os.urandom(200_000)
        channel.send(a_header(Verb.CONTROL_REQUEST), payload)
        request = must_be_asked(listener)
        assert request.role is Role.REPLICA
        assert request.payload == payload
        assert listener.reply(request, a_header(Verb.CONTROL_REPLY), b"yes")
        assert bytes(must_receive(channel).payload) == b"yes"


def test_encryption_leaves_room_for_the_longest_chunk_and_the_longest_answer() -> None:
    keys, longest = client_keys(REPLICA_PUBLIC, REPLICA_SECRET), Limits().payload_bytes
    with (
        opened(a_config(TransportKind.TCP, role=Role.SHARD, curve=LISTENER_KEYS)) as transport,
        opened(a_config(TransportKind.TCP, curve=keys)) as sending,
    ):
        listener = transport.listen("tcp://127.0.0.1:0")
        channel = sending.connect(listener.address)
        channel.send(a_header(Verb.CONTROL_REQUEST), bytes(TcpTransport.chunk_bytes))
        request = must_be_asked(listener)
        assert listener.reply(request, a_header(Verb.CONTROL_REPLY), bytes(longest))
        assert must_receive(channel).payload.nbytes == longest
        channel.send(a_header(Verb.CONTROL_REQUEST), bytes(TcpTransport.chunk_bytes + 1))
        assert listener.receive(0.5) is None


def test_a_key_that_speaks_as_another_role_is_refused(listener: Listener) -> None:
    keys = client_keys(REPLICA_PUBLIC, REPLICA_SECRET)
    with opened(a_config(TransportKind.TCP, curve=keys)) as transport:
        channel = transport.connect(listener.address)
        channel.send(a_header(Verb.CONTROL_REQUEST, role=Role.COORDINATOR))
        until(lambda: listener.refused[Refusal.ROLE] == 1, listener)
        answer = must_receive(channel)
        assert answer.header.reason == Reason.NOT_ALLOWED
        assert b"REPLICA speaks as COORDINATOR" in bytes(answer.payload)


@pytest.mark.parametrize("stranger", ["no key", "unknown key", "false server"])
def test_strangers_are_never_heard(listener: Listener, stranger: str) -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    keys = {
        "no key": None,
        "unknown key": client_keys(public, secret),
        "false server": client_keys(REPLICA_PUBLIC, REPLICA_SECRET, public),
    }[stranger]
    with opened(a_config(TransportKind.TCP, curve=keys)) as transport:
        channel = transport.connect(listener.address)
        channel.send(a_header(Verb.CONTROL_REQUEST))
        assert listener.receive(0.3) is None
        assert not listener.refused


def test_nobody_is_let_in_once_nobody_looks_at_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "start", lambda *_: None)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    server = CurveKeys(public=SERVER_PUBLIC, secret=SERVER_SECRET)
    with (
        opened(a_config(TransportKind.TCP, curve=server)) as transport,
        opened(a_config(TransportKind.TCP, curve=client_keys(public, secret))) as sending,
    ):
        unguarded = transport.listen("tcp://127.0.0.1:0")
        channel = sending.connect(unguarded.address)
        channel.send(a_header(Verb.CONTROL_REQUEST))
        assert unguarded.receive(0.5) is None


@pytest.mark.xfail(
    strict=True,
    reason="ZeroMQ bounds a frame and keeps all frames of a message until the last one; bulk data "
    "needs another transport, in which a message is one frame",
)
def test_a_key_does_not_let_its_holder_send_a_message_without_end(listener: Listener) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as replica:
        replica.linger = 0
        replica.curve_publickey = REPLICA_PUBLIC.encode()
        replica.curve_secretkey = REPLICA_SECRET.encode()
        replica.curve_serverkey = SERVER_PUBLIC.encode()
        with replica.get_monitor_socket(zmq.EVENT_DISCONNECTED) as events:
            replica.connect(listener.address)
            for _ in range(40):
                replica.send(bytes(1 << 20), zmq.SNDMORE)
            replica.send(b"")
            ended = events.poll(1000)
            replica.disable_monitor()
    assert ended


def test_secrets_are_not_shown() -> None:
    assert "secret-text" not in repr(client_keys("public", "secret-text"))
