"""Addresses of listeners, tcp://HOST:PORT and ipc://PATH, and sockets for them."""

import errno
import ipaddress
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from disttrain.transport.errors import AddressRefused

_BACKLOG = 4096
_LONGEST_PATH = 107
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - What a listener on tcp://*:PORT says of itself.
_KEEPALIVE_SECONDS = 5
_UNANSWERED_MS = 60_000
"""A connection is lost whose peer for so long takes nothing of what waits for it, or whose machine
answers no question; on Linux this limit, not a number of questions, ends both."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a listener is, or is to be."""

    text: str
    path: str = ""
    """Of a Unix socket; empty for TCP."""
    host: str = ""
    port: int = 0

    @property
    def has_name(self) -> bool:
        """Whether the host has to be looked up, which may take seconds."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return not self.path
        return False


def parse(text: str) -> Address:
    """Raises AddressRefused."""
    kind, _, rest = text.partition("://")
    if kind == "ipc" and rest:
        if len(os.fsencode(rest)) > _LONGEST_PATH:
            raise _refused("use", text, f"a Unix socket's path has at most {_LONGEST_PATH} bytes")
        return Address(text, path=rest)
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise _refused("use", text, "it must be tcp://HOST:PORT or ipc://PATH")
    return Address(text, host=host.strip("[]"), port=int(port))


def resolve(address: Address) -> list[tuple[socket.AddressFamily, object]]:
    """The families and addresses to connect to, in order. Raises OSError; may take seconds."""
    if address.path:
        return [(socket.AF_UNIX, address.path)]
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [(family, where) for family, _, _, _, where in found]


def open_socket(family: socket.AddressFamily) -> socket.socket:
    """One to connect with, which never blocks."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(0)
    prepare(made)
    return made


def prepare(connection: socket.socket) -> None:
    """Send at once, and notice a peer whose machine is gone."""
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_KEEPIDLE, _KEEPALIVE_SECONDS),
        (socket.TCP_KEEPINTVL, _KEEPALIVE_SECONDS),
        (socket.TCP_USER_TIMEOUT, _UNANSWERED_MS),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def listen(address: Address) -> socket.socket:
    """A bound socket that listens and never blocks. Raises AddressRefused."""
    try:
        made = _bound_path(address.path) if address.path else _bound_port(address)
    except OSError as error:
        remedy = "" if address.path else "; is the port free?"
        raise _refused("listen on", address.text, f"{error}{remedy}") from error
    made.settimeout(0)
    return made


def bound(address: Address, listening: socket.socket) -> str:
    """The address with its real port."""
    if address.path:
        return address.text
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"tcp://{host.replace('*', _EVERYWHERE)}:{listening.getsockname()[1]}"


def leave(address: Address) -> None:
    """Remove the file of a Unix socket that nobody listens on any more."""
    if address.path:
        with suppress(FileNotFoundError):
            Path(address.path).unlink()


def _bound_path(path: str) -> socket.socket:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        # Nobody answers at the file of a listener that was killed.
        if asking.connect_ex(path) == errno.ECONNREFUSED:
            Path(path).unlink()
    return _listening(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)


def _bound_port(address: Address) -> socket.socket:
    if address.host == "*":
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(
            ("", address.port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
        )
    family, where = resolve(address)[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return _listening(made, where)


def _listening(made: socket.socket, where: object) -> socket.socket:
    try:
        made.bind(where)  # type: ignore[arg-type]  # Whatever the family takes.
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _refused(action: str, text: str, why: str) -> AddressRefused:
    return AddressRefused(f"cannot {action} {text!r}: {why}")
