"""Packets for a reader that is busy, or gone."""

import socket
from collections.abc import Iterator

import pytest

from disttrain.launcher.hosts import Outbox

PACKETS = [str(number).encode() for number in range(2000)]
"""More than a socket holds."""


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    writer, reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with writer, reader:
        writer.settimeout(0)
        reader.settimeout(0)
        yield writer, reader


@pytest.fixture
def full(ends: tuple[socket.socket, socket.socket]) -> Outbox:
    """More was put into it than its socket holds."""
    outbox = Outbox(ends[0])
    for packet in PACKETS:
        outbox.put(packet)
    return outbox


def received(reader: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(reader.recv(100))
        except BlockingIOError:
            return found


def test_a_busy_reader_gets_everything_later_and_in_order(
    ends: tuple[socket.socket, socket.socket], full: Outbox
) -> None:
    _, reader = ends
    found = received(reader)
    assert len(found) < len(PACKETS)
    while len(found) < len(PACKETS):
        full.flush()
        more = received(reader)
        assert more
        found += more
    assert found == PACKETS


def test_packets_for_a_reader_that_is_gone_are_dropped(
    ends: tuple[socket.socket, socket.socket], full: Outbox
) -> None:
    _, reader = ends
    reader.close()
    full.flush()
    full.put(b"late")
    assert not full._waiting
