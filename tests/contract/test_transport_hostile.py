"""What strangers can do to a listener: nothing that others notice, and nothing that grows."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import zmq

from builders.transports import (
    PATIENCE,
    a_chunk_header,
    a_config,
    a_header,
    an_address,
    must_be_asked,
    must_receive,
    opened,
    resident_bytes,
    until,
)
from disttrain.transport import codec
from disttrain.transport.config import Limits, TransportKind
from disttrain.transport.digest import job_digest
from disttrain.transport.errors import Refusal
from disttrain.transport.header import Header, Reason, Role, Verb
from disttrain.transport.interface import Channel, Listener
from disttrain.transport.tcp import TcpTransport

JOB = job_digest("job-1")
LIMITS = Limits(payload_bytes=1 << 20, handshake=timedelta(seconds=1))


@dataclass
class Attacked:
    """A listener with one well-behaved peer, and ways for strangers to reach it."""

    kind: TransportKind
    listener: Listener
    friend: Channel
    stranger: "zmq.Socket[bytes]"

    def raw_connection(self) -> socket.socket:
        return raw_connection(self.kind, self.listener)

    def check_unharmed(self) -> None:
        """The friend still gets through, and the next request is its own."""
        self.friend.send(a_header(Verb.CONTROL_REQUEST, sequence=77), b"still there?")
        request = must_be_asked(self.listener)
        assert request.header.sequence == 77
        assert self.listener.reply(request, a_header(Verb.CONTROL_REPLY), b"yes")
        assert bytes(must_receive(self.friend).payload) == b"yes"


@pytest.fixture(params=list(TransportKind))
def attacked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attacked]:
    kind = TransportKind(request.param)
    with opened(a_config(kind, limits=LIMITS)) as transport, zmq.Context() as context:
        listener = transport.listen(an_address(kind, tmp_path))
        friend = transport.connect(listener.address)
        stranger = context.socket(zmq.DEALER)
        stranger.linger = 0
        stranger.rcvtimeo = int(PATIENCE * 1000)
        stranger.connect(listener.address)
        yield Attacked(kind, listener, friend, stranger)
        stranger.close()


def raw_connection(kind: TransportKind, listener: Listener) -> socket.socket:
    if kind is TransportKind.TCP:
        host, port = listener.address.removeprefix("tcp://").split(":")
        return socket.create_connection((host, int(port)), PATIENCE)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE)
    connection.connect(listener.address.removeprefix("ipc://"))
    return connection


def a_frame(header: Header, *place: int) -> bytes:
    return codec.encode(header, job=JOB, place=(place[0], place[1], place[2], place[3]))


def test_random_bytes_are_ignored(attacked: Attacked) -> None:
    for length in (1, 11, 64, 5000):
        connection = attacked.raw_connection()
        connection.sendall(os.urandom(length))
        connection.close()
    attacked.check_unharmed()


def test_half_open_connections_are_closed_and_cost_no_memory(attacked: Attacked) -> None:
    attacked.check_unharmed()
    before = resident_bytes()
    greeting = b"\xff\0\0\0\0\0\0\0\1\x7f"
    connections = []
    for number in range(100):
        connections.append(attacked.raw_connection())
        connections[-1].sendall(greeting[: number % 11])
    attacked.check_unharmed()

    end = time.monotonic() + PATIENCE
    for connection in connections:
        while read_or_end(connection):
            assert time.monotonic() < end
        connection.close()
    assert resident_bytes() - before < 8 << 20


@pytest.mark.parametrize("kind", list(TransportKind))
def test_without_another_limit_a_silent_stranger_has_two_seconds(
    kind: TransportKind, tmp_path: Path
) -> None:
    assert Limits().handshake == timedelta(seconds=2)
    with opened(a_config(kind)) as transport:
        listener = transport.listen(an_address(kind, tmp_path))
        connection = raw_connection(kind, listener)
        began = time.monotonic()
        connection.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f")

        # It ends in time, and not before. Without a limit of ours ZeroMQ would wait for 30 s.
        while read_or_end(connection):
            assert time.monotonic() - began < PATIENCE
        assert time.monotonic() - began > 1.9
        connection.close()


def read_or_end(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1024)
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    ("frames", "refusal"),
    [
        ([b""], Refusal.LENGTH),
        ([b"x" * 10_000], Refusal.LENGTH),
        ([os.urandom(codec.HEADER_BYTES)], Refusal.MAGIC),
        ([b"a", b"b", b"c"], Refusal.FRAMES),
        ([b"a"] * 1000, Refusal.FRAMES),
        ([a_frame(a_header(Verb.HELLO), 0, 0, 5, 0)], Refusal.PAYLOAD),
        ([a_frame(a_header(Verb.HELLO), 0, 0, 5, 0), b"1234"], Refusal.PAYLOAD),
        ([a_frame(a_header(Verb.HELLO), 0, 0, 4, 5), b"1234"], Refusal.CHECKSUM),
        ([a_frame(a_chunk_header(Verb.PUSH, 1), 9, 0, 4, 0), b"1234"], None),
        ([a_frame(a_chunk_header(Verb.PUSH, 1), 9, 0, 4, 0)], None),
        ([a_frame(a_header(Verb.ATTACH), 0, 0, 0, 0)], None),
    ],
)
def test_malformed_messages_are_counted_and_dropped(
    attacked: Attacked, frames: list[bytes], refusal: Refusal | None
) -> None:
    attacked.stranger.send_multipart(frames)

    until(lambda: sum(attacked.listener.refused.values()) == 1, attacked.listener)
    assert refusal is None or attacked.listener.refused[refusal] == 1
    attacked.check_unharmed()


def test_a_corrupt_payload_is_answered_with_its_reason(attacked: Attacked) -> None:
    header = a_chunk_header(Verb.PUSH, 1, sequence=5)
    attacked.stranger.send_multipart([a_frame(header, 0, 0, 4, 123), b"1234"])
    until(lambda: attacked.listener.refused[Refusal.CHECKSUM] == 1, attacked.listener)

    answer = codec.decode(attacked.stranger.recv_multipart()[0], job=JOB)
    assert (answer.verb, answer.reason, answer.sequence) == (Verb.REFUSED, Reason.CORRUPT, 5)


def test_an_oversize_message_ends_its_connection_only(attacked: Attacked) -> None:
    attacked.check_unharmed()
    before = resident_bytes()
    with attacked.stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED) as events:
        attacked.stranger.send_multipart([b"header", bytes(LIMITS.payload_bytes + 1)])
        assert events.poll(int(PATIENCE * 1000))
        attacked.stranger.disable_monitor()
    attacked.check_unharmed()
    assert not attacked.listener.refused
    assert resident_bytes() - before < 8 << 20


@pytest.mark.xfail(
    strict=True,
    reason="ZeroMQ bounds a frame and keeps all frames of a message until the last one; bulk data "
    "needs another transport, in which a message is one frame",
)
def test_a_message_of_too_many_frames_ends_its_connection_before_it_is_whole(
    attacked: Attacked,
) -> None:
    attacked.check_unharmed()
    with attacked.stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED) as events:
        for _ in range(40):
            attacked.stranger.send(bytes(LIMITS.payload_bytes), zmq.SNDMORE)
        attacked.stranger.send(b"")
        ended = events.poll(1000)
        attacked.stranger.disable_monitor()
    assert ended


def test_one_call_looks_at_few_malformed_messages(attacked: Attacked) -> None:
    several = 500
    attacked.stranger.sndtimeo = int(PATIENCE * 1000)
    before = 0
    for number in range(several):
        attacked.stranger.send(b"x")
        if number % 50 == 49:
            attacked.listener.receive(0.0)
            seen = sum(attacked.listener.refused.values())
            assert seen - before <= 64
            before = seen


def test_a_flood_of_refused_messages_keeps_memory_flat(attacked: Attacked) -> None:
    flood(attacked, lambda: attacked.listener.receive(0))
    before = resident_bytes()
    for _ in range(5):
        flood(attacked, lambda: attacked.listener.receive(0))
    assert resident_bytes() - before < 8 << 20
    attacked.check_unharmed()


def flood(attacked: Attacked, run: Callable[[], object]) -> None:
    """Messages that are answered with a refusal, which the stranger never reads."""
    frames = [a_frame(a_header(Verb.HELLO), 0, 0, 4, 5), b"1234"]
    for _ in range(500):
        try:
            attacked.stranger.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            run()
    run()


@pytest.mark.parametrize(
    ("role", "taken"), [(Role.SHARD, False), (Role.COORDINATOR, True), (Role.REPLICA, True)]
)
def test_a_shard_over_tcp_takes_no_longer_frame_than_a_chunk(role: Role, *, taken: bool) -> None:
    with (
        opened(a_config(TransportKind.TCP, role=role)) as transport,
        opened(a_config(TransportKind.TCP)) as sending,
    ):
        listener = transport.listen("tcp://127.0.0.1:0")
        channel = sending.connect(listener.address)
        channel.send(a_header(Verb.CONTROL_REQUEST), bytes(TcpTransport.chunk_bytes))
        assert must_be_asked(listener)
        channel.send(a_header(Verb.CONTROL_REQUEST), bytes(TcpTransport.chunk_bytes + 1))
        assert (listener.receive(PATIENCE if taken else 0.5) is not None) == taken
