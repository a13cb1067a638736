"""What strangers can do to a listener: nothing that others notice, and nothing that grows."""

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from builders import raw_peers
from builders.raw_peers import JOB, a_head
from builders.transports import (
    PATIENCE,
    TLS,
    Medium,
    a_chunk_header,
    a_header,
    a_medium,
    meet,
    must_be_asked,
    must_receive,
    resident_bytes,
    until,
)
from disttrain.transport import framing
from disttrain.transport.config import Limits, TransportKind
from disttrain.transport.errors import Refusal
from disttrain.transport.header import Header, Role, Verb
from disttrain.transport.interface import Channel, Listener
from disttrain.transport.tcp import TcpTransport

T = TypeVar("T")

LIMITS = Limits(
    payload_bytes=1 << 20,
    handshake=timedelta(seconds=1),
    stall=timedelta(seconds=1),
    unauthenticated=50,
)
LITTLE = 8 << 20
"""Bytes that a process may grow by for whatever reason."""


@dataclass
class Attacked:
    """A listener with one well-behaved peer, and ways for strangers to reach it."""

    medium: Medium
    listener: Listener
    friend: Channel
    threads: ThreadPoolExecutor
    held: ExitStack

    def raw_connection(self) -> socket.socket:
        return self.held.enter_context(raw_peers.connect(self.listener.address))

    def greeted(self) -> socket.socket:
        """A connection whose bytes are heard as messages, which may be none."""
        address, credentials = self.listener.address, self.medium.credentials
        return self.held.enter_context(self.beside(lambda: raw_peers.greeted(address, credentials)))

    def beside(self, run: Callable[[], T]) -> T:
        """Run it in another thread while the listener goes on; what it gives."""
        running: Future[T] = self.threads.submit(run)
        end = time.monotonic() + 2 * PATIENCE
        while not running.done():
            assert time.monotonic() < end
            assert self.listener.receive(0.01) is None
        return running.result()

    def check_unharmed(self) -> None:
        """The friend still gets through, and the next request is its own."""
        self.friend.send(a_header(Verb.CONTROL_REQUEST, sequence=77), b"still there?")
        request = must_be_asked(self.listener)
        assert request.header.sequence == 77
        assert self.listener.reply(request, a_header(Verb.CONTROL_REPLY), b"yes")
        assert bytes(must_receive(self.friend).payload) == b"yes"


@contextmanager
def under_attack(medium: Medium, folder: Path, limits: Limits) -> Iterator[Attacked]:
    with (
        medium.opened(limits=limits) as serving,
        medium.opened(role=Role.REPLICA) as client,
        ThreadPoolExecutor(1) as threads,
        ExitStack() as held,
    ):
        listener = serving.listen(medium.address(folder))
        friend = client.connect(listener.address, Role.SHARD)
        meet(friend, listener)
        yield Attacked(medium, listener, friend, threads, held)


@pytest.fixture(params=[*TransportKind, TLS])
def attacked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attacked]:
    with under_attack(a_medium(request.param), tmp_path, LIMITS) as made:
        yield made


def test_random_bytes_are_ignored(attacked: Attacked) -> None:
    for length in (1, 11, 64, 5000):
        connection = attacked.raw_connection()
        connection.sendall(os.urandom(length))
        connection.close()
    attacked.check_unharmed()


def test_half_open_connections_are_closed_and_cost_no_memory(attacked: Attacked) -> None:
    attacked.check_unharmed()
    before = resident_bytes()
    greeting = framing.greeting(JOB)
    connections = []
    for number in range(100):
        connections.append(attacked.raw_connection())
        connections[-1].sendall(greeting[: number % len(greeting)])
    attacked.check_unharmed()
    assert resident_bytes() - before < LITTLE

    assert attacked.beside(lambda: all(map(raw_peers.has_ended, connections)))
    refused = attacked.listener.refused
    assert refused[Refusal.HANDSHAKE] + refused[Refusal.ENCRYPTION] == 100
    assert resident_bytes() - before < LITTLE


def test_a_stranger_who_goes_on_saying_nothing_has_no_more_time(attacked: Attacked) -> None:
    connection, greeting = attacked.raw_connection(), framing.greeting(JOB)
    began = time.monotonic()

    def trickle() -> float:
        with suppress(OSError):
            for position in range(len(greeting) - 1):
                connection.sendall(greeting[position : position + 1])
                time.sleep(0.3)  # The stranger's pace.
        return time.monotonic() - began

    assert attacked.beside(trickle) < 0.3 * (len(greeting) - 2)
    attacked.check_unharmed()


@pytest.mark.parametrize("kind", [*TransportKind, TLS])
def test_strangers_who_say_nothing_make_room_for_others(kind: str, tmp_path: Path) -> None:
    patient = replace(LIMITS, handshake=timedelta(seconds=100 * PATIENCE))
    with under_attack(a_medium(kind), tmp_path, patient) as attacked:
        connections = [attacked.raw_connection() for _ in range(LIMITS.unauthenticated + 10)]

        assert attacked.beside(lambda: all(map(raw_peers.has_ended, connections[:10])))

        attacked.check_unharmed()


def test_who_comes_while_there_are_many_strangers_waits_and_is_heard(attacked: Attacked) -> None:
    for _ in range(LIMITS.unauthenticated + 10):
        attacked.raw_connection()

    connection = attacked.greeted()
    connection.sendall(a_head(a_header(Verb.HELLO, sequence=6), 0, 0, 0))

    assert must_be_asked(attacked.listener).header.sequence == 6


def test_a_listener_that_was_away_hears_those_who_came_meanwhile(attacked: Attacked) -> None:
    """Its thread was elsewhere for longer than a handshake may take, and again for each step."""
    credentials = attacked.medium.credentials
    coming = attacked.threads.submit(raw_peers.greeted, attacked.listener.address, credentials)
    for _ in range(8):
        time.sleep(1.2 * LIMITS.handshake.total_seconds())  # What it does meanwhile.
        assert attacked.listener.receive(0.0) is None
        if coming.done():
            break
    with coming.result(PATIENCE) as connection:
        connection.sendall(a_head(a_header(Verb.HELLO, sequence=6), 0, 0, 0))
        assert must_be_asked(attacked.listener).header.sequence == 6
    assert not attacked.listener.refused


@pytest.mark.parametrize("kind", [*TransportKind, TLS])
def test_without_another_limit_a_silent_stranger_has_two_seconds(kind: str, tmp_path: Path) -> None:
    assert Limits().handshake == timedelta(seconds=2)
    medium = a_medium(kind)
    with medium.opened() as transport:
        listener = transport.listen(medium.address(tmp_path))
        began, ended = time.monotonic(), threading.Event()

        def wait() -> None:
            with raw_peers.connect(listener.address) as connection:
                if raw_peers.has_ended(connection):
                    ended.set()

        threading.Thread(target=wait, daemon=True).start()
        until(ended.is_set, listener)
        assert time.monotonic() - began > 1.9


def a_push(**changed: Any) -> Header:
    return a_chunk_header(Verb.PUSH, 1)._replace(**changed)


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        (os.urandom(framing.HEADER_BYTES), Refusal.MAGIC),
        (a_head(a_header(Verb.HELLO), 0, 0, LIMITS.payload_bytes + 1), Refusal.PAYLOAD),
        (a_head(a_header(Verb.HELLO), 0, 0, 1 << 58), Refusal.PAYLOAD),
    ],
)
def test_who_sends_what_is_no_message_is_disconnected(
    attacked: Attacked, sent: bytes, refusal: Refusal
) -> None:
    before = resident_bytes()
    connection = attacked.greeted()
    connection.sendall(sent)

    assert attacked.beside(lambda: raw_peers.has_ended(connection))
    assert attacked.listener.refused == {refusal: 1}
    attacked.check_unharmed()
    assert resident_bytes() - before < LITTLE


@pytest.mark.parametrize("wrong", [{"verb": 99}, {"count": 2}, {"scale": math.inf}, {"role": 77}])
def test_a_header_with_a_wrong_field_is_answered_and_ends_nothing(
    attacked: Attacked, wrong: dict[str, Any]
) -> None:
    connection = attacked.greeted()
    connection.sendall(a_head(a_push(sequence=5, **wrong), 0, 0, 4) + b"1234")
    connection.sendall(a_head(a_header(Verb.HELLO, sequence=6), 0, 0, 0))

    assert must_be_asked(attacked.listener).header.sequence == 6
    assert attacked.listener.refused == {Refusal.FIELDS: 1}
    answer = connection.recv(framing.HEADER_BYTES)
    assert len(answer) == framing.HEADER_BYTES
    attacked.check_unharmed()


@pytest.mark.parametrize(
    "sent",
    [
        a_head(a_push(), 9, 0, 4),
        a_head(a_header(Verb.ATTACH), 0, 0, 0),
        a_head(a_header(Verb.FETCH, count=1), 9, 0, 4),
    ],
)
def test_references_to_memory_that_is_not_shared_are_counted_and_dropped(
    attacked: Attacked, sent: bytes
) -> None:
    attacked.greeted().sendall(sent)

    until(lambda: sum(attacked.listener.refused.values()) == 1, attacked.listener)
    attacked.check_unharmed()


def test_half_a_message_is_given_up(attacked: Attacked) -> None:
    connection = attacked.greeted()
    connection.sendall(a_head(a_header(Verb.HELLO), 0, 0, 1000) + b"12")

    assert attacked.beside(lambda: raw_peers.has_ended(connection))
    attacked.check_unharmed()


def test_many_halves_of_messages_cost_their_own_places_alone(attacked: Attacked) -> None:
    attacked.check_unharmed()
    before, nbytes = resident_bytes(), LIMITS.payload_bytes
    connections = [attacked.greeted() for _ in range(20)]
    for connection in connections:
        half = a_head(a_header(Verb.HELLO), 0, 0, nbytes) + bytes(nbytes // 2)
        attacked.beside(lambda sent=half, to=connection: to.sendall(sent))  # type: ignore[misc]
    assert resident_bytes() - before < 20 * nbytes + LITTLE

    assert attacked.beside(lambda: all(map(raw_peers.has_ended, connections)))
    attacked.check_unharmed()


def test_a_flood_of_refused_messages_keeps_memory_flat(attacked: Attacked) -> None:
    """They are answered with a refusal, which the stranger never reads."""
    connection = attacked.greeted()
    several = a_head(a_push(), 9, 0, 4) * 500

    def flood() -> None:
        attacked.beside(lambda: connection.sendall(several))

    flood()
    before = resident_bytes()
    for _ in range(5):
        flood()
    until(lambda: sum(attacked.listener.refused.values()) == 3000, attacked.listener)
    assert resident_bytes() - before < LITTLE
    attacked.check_unharmed()


def test_one_call_looks_at_few_refused_messages(attacked: Attacked) -> None:
    connection = attacked.greeted()
    connection.sendall(a_head(a_push(), 9, 0, 4) * 300)
    before = 0
    while before < 300:
        attacked.listener.receive(0.0)
        seen = sum(attacked.listener.refused.values())
        assert seen - before <= 64
        before = seen


def test_a_peer_with_much_to_say_leaves_room_for_others(attacked: Attacked) -> None:
    connection = attacked.greeted()
    connection.sendall(a_head(a_header(Verb.HELLO), 0, 0, 0) * 300)
    assert must_be_asked(attacked.listener).header.verb == Verb.HELLO
    attacked.friend.send(a_header(Verb.CONTROL_REQUEST, sequence=77))

    heard = 0
    while must_be_asked(attacked.listener).header.sequence != 77:
        heard += 1

    assert heard < 50


@pytest.mark.parametrize(
    ("role", "taken"), [(Role.SHARD, False), (Role.COORDINATOR, True), (Role.REPLICA, True)]
)
def test_a_shard_over_tcp_takes_no_longer_message_than_a_chunk(role: Role, *, taken: bool) -> None:
    tcp = a_medium(TransportKind.TCP)
    with tcp.opened(role=role) as transport, tcp.opened(role=Role.REPLICA) as sending:
        listener = transport.listen("tcp://127.0.0.1:0")
        channel = sending.connect(listener.address, role)
        longest = TcpTransport.chunk_bytes
        for nbytes in (longest, longest + 1):
            channel.send(a_header(Verb.CONTROL_REQUEST), bytes(nbytes))
            end = time.monotonic() + PATIENCE
            request = None
            while request is None and time.monotonic() < end and not listener.refused:
                channel.receive(0.0)
                request = listener.receive(0.01)
            assert (request is not None) == (taken or nbytes == longest)
