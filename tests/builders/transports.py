"""Transports and headers for tests."""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import issuing
from disttrain.job.credentials import Credentials, RenewedCredentials
from disttrain.job.transport import Encryption
from disttrain.state.placement import TRAINED
from disttrain.transport.config import Limits, TransportConfig, TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import EMPTY, ElementType, Header, Role, Verb
from disttrain.transport.in_memory import InMemoryTransport, Network
from disttrain.transport.interface import Buffer, Channel, Listener, Message, Request, Transport
from disttrain.transport.virtual_time import VirtualTime

PATIENCE = 10.0
"""Seconds after which a test gives up waiting; nothing waits this long when all is well."""


def a_header(verb: Verb, **fields: Any) -> Header:
    """A header of replica 0, with the given fields, and zeros otherwise."""
    blank = EMPTY._replace(verb=verb, role=Role.REPLICA, scale=1.0)
    return blank._replace(**fields)


def a_chunk_header(verb: Verb, count: int, **fields: Any) -> Header:
    """A header for `count` float32 values of the only chunk."""
    chunk = {"chunk": 0, "chunks": 1, "vector": TRAINED} | fields
    return a_header(verb, count=count, element_type=ElementType.FLOAT32, **chunk)


def a_config(
    kind: TransportKind,
    *,
    job_uid: str = "job-1",
    role: Role = Role.SHARD,
    limits: Limits | None = None,
    send_timeout: float = 10.0,
    credentials: Credentials | RenewedCredentials | None = None,
    encryption: Encryption | None = None,
) -> TransportConfig:
    """A configuration with the defaults for all that a test does not care about.

    Without credentials nothing is encrypted, unless the test says so.
    """
    bare = Encryption.NONE if credentials is None else Encryption.TLS
    return TransportConfig(
        kind=kind,
        job_uid=job_uid,
        role=role,
        limits=limits or Limits(),
        send_timeout=timedelta(seconds=send_timeout),
        encryption=encryption or bare,
        credentials=credentials,
    )


def an_address(kind: TransportKind, folder: Path, name: str = "listener") -> str:
    """Where a listener may be bound."""
    if kind is TransportKind.TCP:
        return "tcp://127.0.0.1:0"
    return f"ipc://{folder}/{name}.sock"


def opened(config: TransportConfig) -> AbstractContextManager[Transport]:
    """A transport that is closed at the end."""
    return closing(open_transport(config))


IN_MEMORY = "in memory"
TLS = "tls"


@cache
def credentials(job_uid: str = "job-1") -> Mapping[Role, Credentials]:
    """Of a job's processes; all have the same authority."""
    issued = issuing.by_role(job_uid, [role.name.lower() for role in Role])
    return {role: issued[role.name.lower()] for role in Role}


@dataclass(frozen=True)
class Medium:
    """What the transports of one test are made of."""

    kind: TransportKind
    network: Network | None = None
    """In memory: by what they are joined."""
    credentials: Mapping[Role, Credentials] | None = None
    """By who uses them, where everything is encrypted."""

    @property
    def is_encrypted(self) -> bool:
        return self.credentials is not None

    def transport(self, **settings: Any) -> Transport:
        """`settings` as of `a_config`."""
        if self.credentials is not None:
            settings.setdefault("credentials", self.credentials[settings.get("role", Role.SHARD)])
        config = a_config(self.kind, **settings)
        if self.network is None:
            return open_transport(config)
        return InMemoryTransport(self.network, config)

    def opened(self, **settings: Any) -> AbstractContextManager[Transport]:
        """A transport that is closed at the end; `settings` as of `a_config`."""
        return closing(self.transport(**settings))

    def address(self, folder: Path) -> str:
        return an_address(self.kind, folder)

    def beside(self, run: Callable[[], None]) -> Callable[[], None]:
        """Run it in another thread; what this gives waits for its end."""
        if self.network is not None:
            time = self.network.time
            time.start(run)
            time.wait(0.0)
            return lambda: time.wait(PATIENCE)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return lambda: thread.join(PATIENCE)

    def of_processes(self) -> "Medium":
        """Skips the test where there is only one process."""
        if self.network is not None:
            pytest.skip("no other process is reached in memory")
        return self


def a_medium(name: str) -> Medium:
    """A `TransportKind`, `TLS`, or `IN_MEMORY` in good weather."""
    if name == IN_MEMORY:
        return Medium(TransportKind.TCP, Network(VirtualTime()))
    if name == TLS:
        return Medium(TransportKind.TCP, credentials=credentials())
    return Medium(TransportKind(name))


def fill(buffer: Buffer) -> np.ndarray:
    """The buffer as float32 values, which are now 0, 1, 2, ..."""
    values = np.frombuffer(buffer.view, np.float32)
    values[:] = np.arange(values.size, dtype=np.float32)
    return values


def must_receive(channel: Channel) -> Message:
    """The next message; fails if none comes."""
    message = channel.receive(PATIENCE)
    assert message is not None, channel.refused
    return message


def must_be_asked(listener: Listener) -> Request:
    """The next request; fails if none comes."""
    request = listener.receive(PATIENCE)
    assert request is not None, listener.refused
    return request


def must_be_asked_while_sending(listener: Listener, channel: Channel) -> Request:
    """The next request of a channel whose messages are longer than what a socket takes at once."""
    for _ in range(int(PATIENCE / 0.01)):
        assert channel.receive(0.0) is None
        request = listener.receive(0.01)
        if request is not None:
            return request
    raise AssertionError(listener.refused)


def meet(channel: Channel, listener: Listener) -> None:
    """Let two sides shake hands that one thread drives; each goes on only while it is asked."""
    channel.send(a_header(Verb.HELLO))
    for _ in range(int(PATIENCE / 0.01)):
        assert channel.receive(0.0) is None
        if listener.receive(0.01) is not None:
            return
    raise AssertionError(listener.refused)


def ask_until_heard(channel: Channel, header: Header, listener: Listener) -> None:
    """Asks a listener that restarted: what goes into the connection it has lost is lost too."""
    for number in range(int(PATIENCE / 0.01)):
        if number % 100 == 0:
            channel.send(header)
        channel.receive(0.0)
        request = listener.receive(0.01)
        if request is not None:
            assert request.header.verb == header.verb
            return
    raise AssertionError(listener.refused)


def until(condition: Callable[[], bool], listener: Listener) -> None:
    """Lets a listener run until the condition holds; fails after many empty rounds."""
    for _ in range(int(PATIENCE / 0.02)):
        if condition():
            return
        listener.receive(0.02)
    raise AssertionError(listener.refused)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
