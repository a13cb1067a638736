"""What every transport promises, run on each of them."""

import gc
import queue
import socket
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from builders.transport_peer import Peer, client, server
from builders.transports import (
    IN_MEMORY,
    PATIENCE,
    TLS,
    Medium,
    a_chunk_header,
    a_header,
    a_medium,
    ask_until_heard,
    fill,
    meet,
    must_be_asked,
    must_be_asked_while_sending,
    must_receive,
    resident_bytes,
    until,
)
from disttrain.transport import framing
from disttrain.transport.config import Limits, TransportKind
from disttrain.transport.errors import (
    AddressRefused,
    ConnectionLost,
    MessageTooLarge,
    Refusal,
    TransportClosed,
    TransportTimeout,
)
from disttrain.transport.header import Header, Role, Verb, job_digest
from disttrain.transport.interface import Channel, Listener, Memory, Slice, Transport
from disttrain.transport.stream import Stream

ELEMENTS = 1 << 16
NBYTES = ELEMENTS * 4


@dataclass
class Pair:
    """A listener and a channel to it, in one process."""

    kind: Medium
    transport: Transport
    listener: Listener
    channel: Channel
    memory: Memory


@pytest.fixture(params=[*TransportKind, TLS, IN_MEMORY])
def kind(request: pytest.FixtureRequest) -> Medium:
    return a_medium(request.param)


@pytest.fixture
def pair(kind: Medium, tmp_path: Path) -> Iterator[Pair]:
    with kind.opened() as serving, kind.opened(role=Role.REPLICA) as transport:
        listener = serving.listen(kind.address(tmp_path))
        channel = transport.connect(listener.address, Role.SHARD)
        memory = transport.memory("replica-0-i1")
        if kind.is_encrypted:
            meet(channel, listener)
        yield Pair(kind, transport, listener, channel, memory)
        memory.close()


def send_many(channel: Channel, messages: int, payload: bytes) -> None:
    for _ in range(messages):
        channel.send(a_header(Verb.CONTROL_REQUEST), payload)


def push(pair: Pair, part: Slice, **fields: float) -> None:
    pair.channel.send(a_chunk_header(Verb.PUSH, part.nbytes // 4, **fields), part)


def test_messages_arrive_in_the_order_sent_with_every_field(pair: Pair) -> None:
    sent = [
        a_header(Verb.CONTROL_REQUEST, sequence=number, sender=3, incarnation=2, staleness=-1)
        for number in range(30)
    ]
    for header in sent:
        pair.channel.send(header, f"request {header.sequence}".encode())

    for header in sent:
        request = must_be_asked(pair.listener)
        assert bytes(request.payload) == f"request {header.sequence}".encode()
        assert request.role is Role.REPLICA
        filled_in = ("job", "payload_bytes")
        assert (
            request.header._replace(**{name: getattr(header, name) for name in filled_in}) == header
        )
    assert not pair.listener.refused


def test_replies_and_unasked_messages_arrive_in_order(pair: Pair) -> None:
    pair.channel.send(a_header(Verb.CONTROL_REQUEST), b"question")
    request = must_be_asked(pair.listener)

    assert pair.listener.reply(request, a_header(Verb.CONTROL_REPLY), b"answer")
    assert pair.listener.reply(request.peer, a_header(Verb.CONTROL_COMMAND), b"order")

    assert [bytes(must_receive(pair.channel).payload) for _ in range(2)] == [b"answer", b"order"]


def test_a_push_arrives_whole_and_from_the_given_offset(pair: Pair) -> None:
    gradient = pair.memory.allocate("gradient", NBYTES)
    values = fill(gradient)

    push(pair, Slice(gradient, 64, NBYTES // 2))

    received = np.frombuffer(must_be_asked(pair.listener).payload, np.float32)
    np.testing.assert_array_equal(received, values[16 : 16 + ELEMENTS // 2])


def test_a_large_push_is_not_copied_by_the_sender(pair: Pair) -> None:
    gradient = pair.memory.allocate("gradient", 32 << 20)
    gradient.view[:] = b"\1" * gradient.nbytes
    pair.channel.send(a_header(Verb.HELLO))
    must_be_asked(pair.listener)
    before = resident_bytes()

    for number in range(16):
        push(pair, Slice(gradient, number << 21, 1 << 21), chunk=number, chunks=16)
    assert resident_bytes() - before < gradient.nbytes

    for _ in range(16):
        assert must_be_asked_while_sending(pair.listener, pair.channel).payload[-1] == 1


def test_a_fetch_lands_in_the_given_place_and_nowhere_else(pair: Pair) -> None:
    incoming = pair.memory.allocate("incoming", NBYTES)
    place = Slice(incoming, 256, NBYTES // 2)
    pair.channel.send(a_header(Verb.FETCH, count=2, chunks=2, first=1000), reply_into=place)
    request = must_be_asked(pair.listener)
    half = ELEMENTS // 4
    for chunk in range(2):
        values = np.full(half, chunk + 1, np.float32)
        answer = a_chunk_header(
            Verb.FETCHED, half, chunk=chunk, chunks=2, first=1000 + chunk * half
        )
        assert pair.listener.reply(request, answer, values.data)
        values[:] = -1.0

    def destination(header: Header) -> memoryview:
        start = 256 + (header.first - 1000) * 4
        return incoming.view[start : start + header.payload_bytes]

    for chunk in range(2):
        message = pair.channel.receive(PATIENCE, destination)
        assert message is not None
        assert message.header.chunk == chunk
        np.testing.assert_array_equal(np.frombuffer(message.payload, np.float32), chunk + 1.0)
    values = np.frombuffer(incoming.view, np.float32)
    np.testing.assert_array_equal(values[:64], 0.0)
    np.testing.assert_array_equal(values[64 : 64 + half], 1.0)
    np.testing.assert_array_equal(values[64 + half : 64 + 2 * half], 2.0)
    np.testing.assert_array_equal(values[64 + 2 * half :], 0.0)


def test_an_answer_is_what_it_was_when_it_was_given(pair: Pair) -> None:
    pair.channel.send(a_header(Verb.CONTROL_REQUEST))
    request = must_be_asked(pair.listener)
    values = bytearray(b"\1") * (7 << 20)
    assert pair.listener.reply(request, a_header(Verb.CONTROL_REPLY), memoryview(values))
    values[:] = bytes(len(values))

    message, end = None, time.monotonic() + PATIENCE
    while message is None and time.monotonic() < end:
        assert pair.listener.receive(0.0) is None
        message = pair.channel.receive(0.01)

    assert message is not None
    assert bytes(message.payload) == b"\1" * len(values)


def test_an_empty_answer_is_an_answer(pair: Pair) -> None:
    incoming = pair.memory.allocate("incoming", NBYTES)
    pair.channel.send(a_header(Verb.FETCH, count=1), reply_into=Slice(incoming, 0, NBYTES))
    request = must_be_asked(pair.listener)
    nothing = np.zeros((0, 3), np.float32)

    assert pair.listener.reply(request, a_chunk_header(Verb.FETCHED, 0), nothing.data)
    assert must_receive(pair.channel).payload.nbytes == 0


def test_an_answer_of_another_length_than_its_place_is_passed_over(pair: Pair) -> None:
    pair.channel.send(a_header(Verb.FETCH, count=1))
    request = must_be_asked(pair.listener)
    pair.listener.reply(request, a_chunk_header(Verb.FETCHED, 4), bytes(16))
    pair.listener.reply(request, a_header(Verb.PUSHED))

    message = pair.channel.receive(PATIENCE, lambda _: memoryview(bytearray(8)))

    assert message is not None
    assert message.header.verb == Verb.PUSHED
    assert sum(pair.channel.refused.values()) == 1


def test_receiving_nothing_ends_after_the_timeout(pair: Pair) -> None:
    start = pair.transport.now()
    assert pair.channel.receive(0.05) is None
    assert pair.listener.receive(0.05) is None
    assert 0.1 <= pair.transport.now() - start < PATIENCE


def test_a_wait_for_messages_ends_when_the_channel_is_woken(pair: Pair) -> None:
    received: list[object] = []
    waiting = pair.kind.beside(lambda: received.append(pair.channel.receive(3600.0)))
    pair.channel.wake()
    waiting()
    assert received == [None]

    pair.channel.wake()
    assert pair.channel.receive(3600.0) is None
    assert pair.channel.receive(0.01) is None


def test_a_wait_for_the_rest_of_a_message_is_a_wait(tmp_path: Path) -> None:
    with (
        a_medium(TransportKind.TCP).opened(role=Role.REPLICA) as transport,
        socket.create_server(("127.0.0.1", 0)) as serving,
    ):
        channel = transport.connect(f"tcp://127.0.0.1:{serving.getsockname()[1]}", Role.SHARD)
        assert channel.receive(0.0) is None
        connected, _ = serving.accept()
        with connected:
            place = (0, 0, 5000)
            header = a_header(Verb.CONTROL_REPLY)
            head = framing.encode(header, job=job_digest("job-1"), place=place)
            connected.sendall(head + bytes(1000))
            assert transport.wait([channel], PATIENCE) == [channel]
            while channel.receive(0.0) is not None or transport.wait([channel], 0.0):
                pass
            assert transport.wait([channel], 0.05) == []
            connected.sendall(bytes(1000))
            assert transport.wait([channel], PATIENCE) == [channel]


def test_half_a_message_ends_a_connection_for_the_client_too() -> None:
    limits = Limits(stall=timedelta(seconds=0.2))
    tcp = a_medium(TransportKind.TCP)
    with (
        tcp.opened(role=Role.REPLICA, limits=limits) as transport,
        socket.create_server(("127.0.0.1", 0)) as serving,
    ):
        channel = transport.connect(f"tcp://127.0.0.1:{serving.getsockname()[1]}", Role.SHARD)
        for _ in range(2):
            assert channel.receive(0.05) is None
            serving.settimeout(PATIENCE)
            connected, _ = serving.accept()
            with connected:
                head = framing.encode(a_header(Verb.PUSHED), job=transport.job)
                connected.sendall(head[:20])
                connected.settimeout(0)
                heard, has_ended, end = b"", False, time.monotonic() + PATIENCE
                while not has_ended and time.monotonic() < end:
                    assert channel.receive(0.02) is None
                    try:
                        more = connected.recv(100)
                    except BlockingIOError:
                        continue
                    has_ended = not more
                    heard += more
                assert has_ended
                assert heard == framing.greeting(transport.job)


def test_a_connection_that_is_lost_with_its_greeting_greets_once_when_it_comes_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pair.kind.network is not None:
        pytest.skip("nobody greets in memory")
    taken = Stream.write
    with pair.kind.opened(role=Role.REPLICA) as transport:
        channel = transport.connect(pair.listener.address, Role.SHARD)
        failures = iter([True])

        def write(stream: Stream, parts: Sequence[memoryview]) -> int:
            if next(failures, False):
                message = "on purpose"
                raise ConnectionLost(message)
            return taken(stream, parts)

        monkeypatch.setattr(Stream, "write", write)
        meet(channel, pair.listener)
    assert not pair.listener.refused[Refusal.WRONG_JOB]
    assert not pair.listener.refused[Refusal.MAGIC]


def test_closed_channels_are_forgotten(kind: Medium, tmp_path: Path) -> None:
    if kind.network is not None:
        pytest.skip("a simulation is over before they would matter")
    with kind.opened(role=Role.REPLICA) as transport:
        made = transport.connect(kind.address(tmp_path).replace(":0", ":9"), Role.SHARD)
        reference = weakref.ref(made)
        made.close()
        del made
        gc.collect()
        assert reference() is None


def test_waiting_names_the_endpoints_that_can_be_received_from(pair: Pair) -> None:
    endpoints = [pair.listener, pair.channel]
    assert pair.transport.wait(endpoints, 0.01) == []

    pair.channel.send(a_header(Verb.HELLO))
    assert pair.transport.wait(endpoints, PATIENCE) == [pair.listener]
    pair.listener.reply(must_be_asked(pair.listener), a_header(Verb.WELCOME))
    assert pair.transport.wait(endpoints, PATIENCE) == [pair.channel]


def test_a_payload_above_the_limit_is_not_sent(kind: Medium, tmp_path: Path) -> None:
    with kind.opened(limits=Limits(payload_bytes=1000)) as transport:
        channel = transport.connect(kind.address(tmp_path).replace(":0", ":9"))
        with pytest.raises(MessageTooLarge, match="1001"):
            channel.send(a_header(Verb.CONTROL_REQUEST), bytes(1001))


def test_sending_to_nobody_raises_after_the_send_timeout(kind: Medium, tmp_path: Path) -> None:
    limits = Limits(send_queue=2, header_queue=2)
    with kind.opened(limits=limits, send_timeout=0.05) as transport:
        channel = transport.connect(kind.address(tmp_path).replace(":0", ":9"), Role.SHARD)
        with pytest.raises(TransportTimeout):
            send_many(channel, 10, b"x")


def test_sending_to_a_coordinator_that_is_away_never_waits(kind: Medium, tmp_path: Path) -> None:
    failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()

    def send_until_refused(channel: Channel) -> None:
        try:
            send_many(channel, 1000, b"x")
        except TransportTimeout as error:
            failures.put(error)

    with kind.opened(send_timeout=2 * PATIENCE) as transport:
        channel = transport.connect(kind.address(tmp_path).replace(":0", ":9"))
        kind.beside(lambda: send_until_refused(channel))()
        assert "full" in str(failures.get_nowait())


def test_a_server_that_takes_nothing_bounds_what_waits_for_it(pair: Pair) -> None:
    with pair.kind.opened(role=Role.REPLICA, send_timeout=0.05) as transport:
        channel = transport.connect(pair.listener.address, Role.SHARD)
        meet(channel, pair.listener)
        with pytest.raises(TransportTimeout):
            send_many(channel, 5000, bytes(1 << 17))
        must_be_asked(pair.listener)


def test_a_client_that_takes_nothing_bounds_what_waits_for_it(pair: Pair) -> None:
    pair.channel.send(a_header(Verb.HELLO))
    request = must_be_asked(pair.listener)

    answers = (
        pair.listener.reply(request, a_header(Verb.WELCOME), b"x" * 100_000) for _ in range(5000)
    )

    assert not all(answers)
    assert must_receive(pair.channel).header.verb == Verb.WELCOME


def test_messages_of_another_job_are_counted_and_not_answered(pair: Pair) -> None:
    with pair.kind.opened(job_uid="job-2", role=Role.REPLICA) as transport:
        channel = transport.connect(pair.listener.address, Role.SHARD)
        channel.send(a_header(Verb.CONTROL_REQUEST), b"x")
        for _ in range(int(PATIENCE / 0.02)):
            assert channel.receive(0.0) is None
            assert pair.listener.receive(0.02) is None
            if pair.listener.refused:
                break
        # Under TLS the client sees first that the certificate is another job's.
        expected = Refusal.HANDSHAKE if pair.kind.is_encrypted else Refusal.WRONG_JOB
        assert set(pair.listener.refused) == {expected}


def test_a_peer_that_left_is_reported(pair: Pair) -> None:
    pair.channel.send(a_header(Verb.HELLO))
    request = must_be_asked(pair.listener)
    pair.channel.close()

    answer = a_header(Verb.WELCOME)
    until(lambda: not pair.listener.reply(request, answer), pair.listener)


def test_a_channel_finds_a_restarted_listener_and_its_memory_too(
    kind: Medium, tmp_path: Path
) -> None:
    with kind.opened(role=Role.REPLICA) as client:
        memory = client.memory("replica-0-i1")
        gradient = memory.allocate("gradient", NBYTES)
        values = fill(gradient)
        part = Slice(gradient, 0, NBYTES)
        with kind.opened() as first_incarnation:
            listener = first_incarnation.listen(kind.address(tmp_path))
            channel = client.connect(listener.address, Role.SHARD)
            meet(channel, listener)
            channel.send(a_chunk_header(Verb.PUSH, ELEMENTS), part)
            must_be_asked(listener)

        with kind.opened() as second_incarnation:
            listener = second_incarnation.listen(listener.address)
            ask_until_heard(channel, a_header(Verb.HELLO), listener)
            channel.send(a_chunk_header(Verb.PUSH, ELEMENTS), part)

            heard = iter(lambda: must_be_asked(listener), None)
            push = next(request for request in heard if request.header.verb == Verb.PUSH)
            np.testing.assert_array_equal(np.frombuffer(push.payload, np.float32), values)
        memory.close()


def test_a_forgotten_peer_can_introduce_itself_again(pair: Pair) -> None:
    gradient = pair.memory.allocate("gradient", NBYTES)
    part = Slice(gradient, 0, NBYTES)
    push(pair, part)
    peer = must_be_asked(pair.listener).peer

    pair.listener.forget(peer)
    pair.listener.forget(peer)
    pair.channel.send(a_header(Verb.HELLO))
    push(pair, part)

    assert must_be_asked(pair.listener).header.verb == Verb.HELLO
    assert must_be_asked(pair.listener).payload.nbytes == NBYTES


def test_buffers_are_aligned_zero_and_closable_twice(pair: Pair) -> None:
    buffer = pair.memory.allocate("values", 100)
    array = np.frombuffer(buffer.view, np.uint8)
    assert array.ctypes.data % 64 == 0
    assert not array.any()
    assert pair.memory.allocate("nothing", 0).view.nbytes == 0

    buffer.close()
    buffer.close()
    assert array.sum() == 0


def test_an_address_in_use_is_refused_by_name(pair: Pair) -> None:
    if pair.kind.kind is TransportKind.SHARED_MEMORY:
        with pytest.raises(AddressRefused, match=r"tcp://0\.0\.0\.0"):
            pair.transport.listen("tcp://0.0.0.0:0")
        return
    with pytest.raises(AddressRefused, match=pair.listener.address):
        pair.transport.listen(pair.listener.address)


def test_what_is_closed_says_so(pair: Pair) -> None:
    for endpoint in (pair.channel, pair.listener):
        endpoint.close()
        endpoint.close()
    with pytest.raises(TransportClosed):
        pair.channel.send(a_header(Verb.HELLO))
    with pytest.raises(TransportClosed):
        pair.channel.receive(1.0)
    with pytest.raises(TransportClosed):
        pair.listener.receive(1.0)
    with pytest.raises(TransportClosed):
        pair.transport.wait([pair.channel], 1.0)


def test_closing_does_not_wait_for_messages_to_nobody(kind: Medium, tmp_path: Path) -> None:
    with kind.opened(send_timeout=600.0) as transport:
        channel = transport.connect(kind.address(tmp_path).replace(":0", ":9"))
        channel.send(a_header(Verb.HELLO))
        start = time.monotonic()
    assert time.monotonic() - start < 60.0


def test_a_client_killed_in_the_middle_leaves_its_push_readable(pair: Pair) -> None:
    with Peer(client, pair.kind.of_processes(), pair.listener.address) as peer:
        received = must_be_asked(pair.listener)
        peer.kill()

        payload = np.frombuffer(received.payload, np.float32)
        np.testing.assert_array_equal(payload, 1.0)

    gradient = pair.memory.allocate("gradient", NBYTES)
    push(pair, Slice(gradient, 0, NBYTES), sender=7)
    while (request := must_be_asked(pair.listener)).header.sender != 7:
        pass
    assert request.payload.nbytes == NBYTES


def test_a_server_killed_in_the_middle_leaves_the_client_able_to_go_on(
    kind: Medium, tmp_path: Path
) -> None:
    with kind.opened(role=Role.REPLICA) as transport:
        memory = transport.memory("replica-0-i1")
        incoming = memory.allocate("incoming", NBYTES)
        with Peer(server, kind.of_processes(), kind.address(tmp_path)) as peer:
            channel = transport.connect(peer.said(), Role.SHARD)
            gradient = memory.allocate("gradient", NBYTES)
            channel.send(a_chunk_header(Verb.PUSH, ELEMENTS), Slice(gradient, 0, NBYTES))
            channel.send(a_header(Verb.FETCH, count=1), reply_into=Slice(incoming, 0, NBYTES))
            assert must_receive(channel).header.verb == Verb.FETCHED
            assert peer.said() == 0
            peer.kill()
        assert channel.receive(0.05) is None
        gradient.view[:] = incoming.view
        memory.close()
