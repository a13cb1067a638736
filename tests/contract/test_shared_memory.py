"""What shared memory promises beyond the contract: nothing is copied, and nothing stays behind."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

from builders.transport_peer import Peer, client, server
from builders.transports import (
    Medium,
    a_chunk_header,
    a_config,
    a_header,
    fill,
    must_be_asked,
    must_receive,
    opened,
    until,
)
from disttrain.transport.config import Limits, TransportKind
from disttrain.transport.errors import Refusal
from disttrain.transport.header import Reason, Verb
from disttrain.transport.interface import Channel, Listener, Memory, Slice, Transport

KIND = TransportKind.SHARED_MEMORY
ELEMENTS = 1024
NBYTES = ELEMENTS * 4


@dataclass
class Pair:
    """A listener, a channel to it and the channel's memory."""

    listener: Listener
    channel: Channel
    memory: Memory

    def push(self, part: Slice) -> None:
        self.channel.send(a_chunk_header(Verb.PUSH, part.nbytes // 4), part)

    def fetch(self, place: Slice) -> None:
        self.channel.send(a_header(Verb.FETCH, count=1), reply_into=place)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with opened(a_config(KIND, limits=Limits(segments_per_peer=4))) as transport:
        listener = transport.listen(f"ipc://{tmp_path}/listener.sock")
        memory = transport.memory("replica-0-i1")
        yield Pair(listener, transport.connect(listener.address), memory)
        memory.close()


def holders(name: str) -> list[str]:
    """Of this process and those below it those that have the segment open or mapped.

    Tests of other workers give the same names.
    """
    own = psutil.Process()
    ours = [str(process.pid) for process in (own, *own.children(recursive=True))]
    return [process for process in ours if re.search(rf"{name}\b", everything_held_by(process))]


def everything_held_by(process: str) -> str:
    folder = Path("/proc") / process
    try:
        held = [(folder / "maps").read_text()]
        links = list((folder / "fd").iterdir())
    except OSError:
        return ""
    for link in links:
        with suppress(OSError):
            held.append(str(link.readlink()))
    return " ".join(held)


def test_a_push_is_the_clients_own_memory(pair: Pair) -> None:
    gradient = pair.memory.allocate("gradient", NBYTES)
    values = fill(gradient)
    pair.push(Slice(gradient, 0, NBYTES))
    request = must_be_asked(pair.listener)

    values[0] = 99.0

    assert np.frombuffer(request.payload, np.float32)[0] == 99.0
    assert request.payload.readonly


def test_a_fetch_lies_in_its_place_before_its_header_is_received(pair: Pair) -> None:
    incoming = pair.memory.allocate("incoming", NBYTES)
    pair.fetch(Slice(incoming, 0, NBYTES))
    request = must_be_asked(pair.listener)

    values = np.arange(ELEMENTS, dtype=np.float32)
    assert pair.listener.reply(request, a_chunk_header(Verb.FETCHED, ELEMENTS), values.data)

    np.testing.assert_array_equal(np.frombuffer(incoming.view, np.float32), values)
    assert must_receive(pair.channel).payload == incoming.view


def test_an_answer_may_be_written_where_it_is_to_lie(pair: Pair) -> None:
    incoming = pair.memory.allocate("incoming", NBYTES)
    pair.channel.send(a_header(Verb.FETCH, count=1), reply_into=Slice(incoming, 256, 256))
    request = must_be_asked(pair.listener)
    request.payload[:] = np.arange(64, dtype=np.float32).data.cast("B")

    assert pair.listener.reply(request, a_chunk_header(Verb.FETCHED, 64), request.payload)

    received = np.frombuffer(must_receive(pair.channel).payload, np.float32)
    np.testing.assert_array_equal(received, np.arange(64))
    np.testing.assert_array_equal(np.frombuffer(incoming.view[256:512], np.float32), received)
    assert not any(incoming.view[:256])
    assert not any(incoming.view[512:])


def test_an_answer_never_leaves_the_place_that_was_asked_for(pair: Pair) -> None:
    incoming = pair.memory.allocate("incoming", NBYTES)
    pair.channel.send(
        a_header(Verb.FETCH, count=1, first=100), reply_into=Slice(incoming, 256, 256)
    )
    request = must_be_asked(pair.listener)
    ones = np.ones(64, np.float32)

    for first in (99, 101, 1 << 40):
        answer = a_chunk_header(Verb.FETCHED, 64, first=first)
        assert not pair.listener.reply(request, answer, ones.data)
    assert not np.frombuffer(incoming.view, np.float32).any()
    answer = a_chunk_header(Verb.FETCHED, 64, first=100)
    assert pair.listener.reply(request, answer, ones.data)
    assert np.frombuffer(incoming.view, np.float32).sum() == 64


def test_a_push_beyond_its_segment_is_refused(pair: Pair) -> None:
    gradient = pair.memory.allocate("gradient", NBYTES)
    pair.push(Slice(gradient, 0, NBYTES + 4))
    until(lambda: pair.listener.refused[Refusal.SEGMENT] == 1, pair.listener)


def test_a_reference_to_forgotten_memory_is_refused_once_and_then_attached_again(
    pair: Pair,
) -> None:
    part = Slice(pair.memory.allocate("gradient", NBYTES), 0, NBYTES)
    pair.push(part)
    pair.listener.forget(must_be_asked(pair.listener).peer)

    pair.push(part)
    until(lambda: pair.listener.refused[Refusal.SEGMENT] == 1, pair.listener)
    answer = must_receive(pair.channel)
    assert (answer.header.verb, answer.header.reason) == (Verb.REFUSED, Reason.WRONG_RECEIVER)

    pair.push(part)
    assert must_be_asked(pair.listener).payload.nbytes == NBYTES


def test_too_many_segments_are_refused_with_a_sentence(pair: Pair) -> None:
    buffers = [pair.memory.allocate("gradient", 64) for _ in range(5)]
    for buffer in buffers:
        pair.push(Slice(buffer, 0, 64))
    for _ in range(4):
        must_be_asked(pair.listener)
    assert pair.listener.receive(0.05) is None

    assert b"5 segments of this peer; at most 4" in bytes(must_receive(pair.channel).payload)


def test_segments_vanish_after_the_client_was_killed(pair: Pair) -> None:
    with Peer(client, Medium(KIND), pair.listener.address) as peer:
        gradient, incoming = peer.said()
        request = must_be_asked(pair.listener)
        must_be_asked(pair.listener)
        peer.kill()

    assert holders(gradient)
    until(lambda: not holders(incoming), pair.listener)
    assert request.payload.nbytes
    del request
    until(lambda: not holders(gradient), pair.listener)


def test_segments_vanish_after_the_server_was_killed(tmp_path: Path) -> None:
    with opened(a_config(KIND)) as transport:
        memory = transport.memory("replica-0-i1")
        names = ask_until_killed(transport, memory, f"ipc://{tmp_path}/listener.sock")
        memory.close()
        assert not any(holders(name) for name in names)


def ask_until_killed(transport: Transport, memory: Memory, address: str) -> tuple[str, str]:
    """Names of the segments that a server had mapped when it was killed."""
    gradient = memory.allocate("gradient", NBYTES)
    incoming = memory.allocate("incoming", NBYTES)
    with Peer(server, Medium(KIND), address) as peer:
        channel = transport.connect(peer.said())
        channel.send(a_chunk_header(Verb.PUSH, ELEMENTS), Slice(gradient, 0, NBYTES))
        channel.send(a_header(Verb.FETCH, count=1), reply_into=Slice(incoming, 0, NBYTES))
        assert peer.said() == 0
        assert str(peer.pid) in holders(gradient.name)
        channel.close()
    return gradient.name, incoming.name
