"""Payloads inside the messages: between machines, and for short payloads everywhere."""

import time
from collections.abc import Sequence
from typing import Protocol, TypeVar, cast

from disttrain.transport import descriptors
from disttrain.transport.channel import SocketChannel
from disttrain.transport.config import TransportConfig
from disttrain.transport.digest import job_digest
from disttrain.transport.header import Role
from disttrain.transport.interface import Channel, Endpoint, Listener, Memory
from disttrain.transport.listener import SocketListener
from disttrain.transport.memory import OrdinaryMemory
from disttrain.transport.stream import Interest, deadline, remaining, wait

Made = TypeVar("Made", bound=Endpoint)


class _SocketEndpoint(Protocol):
    """What both kinds of endpoints offer to `wait`."""

    def is_ready(self) -> bool: ...

    def interests(self) -> list[Interest]: ...

    def due_in(self) -> float: ...


class TcpTransport:
    """See `interface.Transport`."""

    chunk_bytes = 2 << 20

    def __init__(self, config: TransportConfig) -> None:
        descriptors.raise_limit()
        self.job = job_digest(config.job_uid)
        self._config = config
        self._endpoints: list[Endpoint] = []

    def now(self) -> float:
        return time.monotonic()

    def memory(self, owner: str) -> Memory:
        """Ordinary memory, whoever owns it."""
        del owner
        return OrdinaryMemory()

    def listen(self, address: str) -> Listener:
        limits = self._config.limits
        # A shard is sent nothing longer than a chunk.
        longest = self.chunk_bytes if self._config.role is Role.SHARD else limits.payload_bytes
        largest = min(limits.payload_bytes, longest)
        return self._kept(SocketListener(self._config, address, largest, limits.send_queue))

    def connect(self, address: str, listener: Role = Role.COORDINATOR) -> Channel:
        queue_length = self._config.limits.send_queue
        return self._kept(SocketChannel(self._config, address, listener, queue_length))

    def wait(self, endpoints: Sequence[Endpoint], timeout: float) -> list[Endpoint]:
        end = deadline(timeout)
        asked = [cast(_SocketEndpoint, endpoint) for endpoint in endpoints]
        while True:
            ready = [one for one, two in zip(endpoints, asked, strict=True) if two.is_ready()]
            left = remaining(end)
            if ready or left == 0.0:
                return ready
            interests = [interest for one in asked for interest in one.interests()]
            wait(interests, min([left, *(one.due_in() for one in asked)]))

    def _kept(self, made: Made) -> Made:
        """Close it with the transport."""
        self._endpoints.append(made)
        return made

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()
