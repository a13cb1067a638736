"""A process for tests to kill, which is one end of a transport."""

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

import numpy as np

from builders import warm_processes
from builders.transports import PATIENCE, Medium, a_chunk_header, a_header, must_be_asked
from disttrain.transport.header import Role, Verb
from disttrain.transport.interface import Slice

Act = Callable[[Connection, Medium, str], None]

ELEMENTS = 1 << 16


def client(told: Connection, medium: Medium, address: str) -> None:
    """Pushes ones, asks for a fetch, and stays. Says the names of its segments."""
    transport = medium.transport(role=Role.REPLICA)
    memory = transport.memory("replica-0-i1")
    gradient = memory.allocate("gradient", ELEMENTS * 4)
    incoming = memory.allocate("incoming", ELEMENTS * 4)
    np.frombuffer(gradient.view, np.float32)[:] = 1.0
    told.send((gradient.name, incoming.name))
    channel = transport.connect(address, Role.SHARD)
    channel.send(a_chunk_header(Verb.PUSH, ELEMENTS), Slice(gradient, 0, ELEMENTS * 4))
    channel.send(a_header(Verb.FETCH, count=1), reply_into=Slice(incoming, 0, ELEMENTS * 4))
    channel.receive(PATIENCE * 6)


def server(told: Connection, medium: Medium, address: str) -> None:
    """Says where it listens and what was pushed, answers half of a fetch, and stays."""
    transport = medium.transport()
    listener = transport.listen(address)
    told.send(listener.address)
    push = must_be_asked(listener)
    fetch = must_be_asked(listener)
    half = np.full(ELEMENTS // 2, 2.0, np.float32)
    answer = a_chunk_header(Verb.FETCHED, half.size, chunks=2)
    listener.reply(fetch, answer, half.data)
    told.send(push.payload[0])
    listener.receive(PATIENCE * 6)


class Peer:
    """`client` or `server` in a process of its own; killed at the end."""

    def __init__(
        self,
        act: Act,
        medium: Medium,
        address: str,
    ) -> None:
        context = warm_processes.context()
        self._told, told = context.Pipe()
        self._process = context.Process(target=act, args=(told, medium, address), daemon=True)
        self._process.start()
        told.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._told.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def said(self) -> Any:
        """The next thing that it says."""
        assert self._told.poll(PATIENCE * 6)
        return self._told.recv()

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        self._process.kill()
        self._process.join(PATIENCE)
        assert self._process.exitcode is not None
