"""What strangers send to the port at which pods ask for certificates: little comes of it."""

import json
import resource
import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from builders.signing_port import HOST, KEY, SigningPort
from builders.transports import PATIENCE
from disttrain.job import certificates, pod_layout
from disttrain_operator.signing import endpoint

_PACKED_MIB = 4000
_PIECE = 16 << 10


@pytest.fixture
def port() -> Iterator[SigningPort]:
    made = SigningPort()
    with made.serving():
        yield made


def believing(port: SigningPort) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=port.trust.signer_authority)


@contextmanager
def connected(port: SigningPort, context: ssl.SSLContext | None = None) -> Iterator[ssl.SSLSocket]:
    used = context or believing(port)
    with (
        socket.create_connection((HOST, port.port), timeout=PATIENCE) as plain,
        used.wrap_socket(plain, server_hostname=HOST) as made,
    ):
        yield made


def asked(body: bytes, *more: bytes) -> bytes:
    lines = [
        f"POST {pod_layout.SIGNING_PATH} HTTP/1.1".encode(),
        b"Host: x",
        b"Content-Length: %d" % len(body),
        *more,
    ]
    return b"\r\n".join([*lines, b"", b""]) + body


def status(stream: ssl.SSLSocket, sent: bytes) -> int:
    stream.sendall(sent)
    return int(stream.recv(4096).split()[1])


def answered_meanwhile(stranger: ssl.SSLSocket, sent: bytes) -> tuple[bytes, memoryview]:
    """What comes back while it is sent, and the rest of it.

    A socket under TLS is not for two threads at once.
    """
    stranger.settimeout(0)
    rest, end = memoryview(sent), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(ssl.SSLWantReadError):
            return stranger.recv(4096), rest
        with suppress(ssl.SSLWantWriteError):
            rest = rest[stranger.send(rest[:_PIECE]) :]
        select.select([stranger], [stranger] if rest else [], [], 0.1)
    message = "no answer in time"
    raise AssertionError(message)


def send_on(stranger: ssl.SSLSocket, rest: memoryview) -> None:
    """As long as the port passes over what comes after its answer."""
    with suppress(OSError):
        stranger.sendall(rest)


def packed() -> bytes:
    """A few MB that are thousands as soon as somebody unpacks them."""
    packer = zlib.compressobj(9)
    begun, again = (
        packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    )
    return begun + again * (_PACKED_MIB - 1)


def test_what_is_packed_is_not_unpacked(port: SigningPort, monkeypatch: pytest.MonkeyPatch) -> None:
    unpackers, make = [], zlib.decompressobj

    def noted(*arguments: Any, **named: Any) -> Any:
        unpackers.append(arguments)
        return make(*arguments, **named)

    monkeypatch.setattr(zlib, "decompressobj", noted)
    sent = asked(packed(), b"Content-Encoding: deflate")
    with connected(port) as stranger:
        answer, rest = answered_meanwhile(stranger, sent)
        assert int(answer.split()[1]) == 413
        stranger.settimeout(PATIENCE)
        sending = threading.Thread(target=send_on, args=(stranger, rest), daemon=True)
        sending.start()
        began = time.monotonic()
        # In the one thread that also looks after all jobs: unpacking it would take ten seconds.
        with connected(port) as pod:
            assert status(pod, asked(b"{}")) == 400
        assert time.monotonic() - began < 5.0
        sending.join(PATIENCE)
    # Time alone does not tell: where it is unpacked, that ends with the connection, in a second.
    assert unpackers == []


def test_a_token_that_is_none_is_not_asked_about(port: SigningPort) -> None:
    request = certificates.new_request().text
    body = json.dumps({"job": KEY.name, "instance": "a.1", "request": request}).encode()
    with connected(port) as stranger:
        assert status(stranger, asked(body, b"Authorization: Bearer \xff\xfe")) == 401


def test_who_does_not_take_leave_holds_no_connection_beyond_the_limit(port: SigningPort) -> None:
    """Each has shaken hands, says nothing, and never answers the end of TLS."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = endpoint.MOST_CONNECTIONS + 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], 4 * held), limits[1]))
    try:
        with ExitStack() as strangers:
            before, context = open_descriptors(), believing(port)
            for _ in range(held):
                strangers.enter_context(connected(port, context))
            # Both ends are of this process.
            end = time.monotonic() + PATIENCE
            while open_descriptors() - before - held > endpoint.MOST_CONNECTIONS:
                assert time.monotonic() < end
                time.sleep(0.02)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
