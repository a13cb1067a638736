"""A process for tests to kill: `transport_peer.py client KIND ADDRESS` or `server KIND ADDRESS`.

A client pushes a gradient of ones, asks for a fetch, and then stays. A server says where it
listens, answers a fetch with half of what was asked for, and then stays.
"""

import sys

import numpy as np

from builders.transports import PATIENCE, a_chunk_header, a_config, a_header, must_be_asked
from disttrain.transport.config import TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role, Verb
from disttrain.transport.interface import Slice

ELEMENTS = 1 << 16


def client(kind: TransportKind, address: str) -> None:
    """Says the names of its segments, and what it received."""
    transport = open_transport(a_config(kind, role=Role.REPLICA))
    memory = transport.memory("replica-0-i1")
    gradient = memory.allocate("gradient", ELEMENTS * 4)
    incoming = memory.allocate("incoming", ELEMENTS * 4)
    np.frombuffer(gradient.view, np.float32)[:] = 1.0
    sys.stdout.write(f"{gradient.name} {incoming.name}\n")
    sys.stdout.flush()
    channel = transport.connect(address)
    channel.send(a_chunk_header(Verb.PUSH, ELEMENTS), Slice(gradient, 0, ELEMENTS * 4))
    channel.send(a_header(Verb.FETCH, count=1), reply_into=Slice(incoming, 0, ELEMENTS * 4))
    channel.receive(PATIENCE * 6)


def server(kind: TransportKind, address: str) -> None:
    """Receives a push and a fetch, copies the first half of the answer, and says so."""
    transport = open_transport(a_config(kind))
    listener = transport.listen(address)
    sys.stdout.write(f"{listener.address}\n")
    sys.stdout.flush()
    push = must_be_asked(listener)
    fetch = must_be_asked(listener)
    half = np.full(ELEMENTS // 2, 2.0, np.float32)
    answer = a_chunk_header(Verb.FETCHED, half.size, chunks=2)
    listener.reply(fetch, answer, half.data)
    sys.stdout.write(f"{push.payload[0]}\n")
    sys.stdout.flush()
    listener.receive(PATIENCE * 6)


if __name__ == "__main__":
    {"client": client, "server": server}[sys.argv[1]](TransportKind(sys.argv[2]), sys.argv[3])
