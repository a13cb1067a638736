"""A TCP port that is nobody else's while the launcher lives, whoever listens at it meanwhile."""

import socket
from dataclasses import dataclass

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ReservedPort:
    """A socket that is bound and never listens.

    The kernel gives its port to nobody who asks for any free one, nor to a connection. A listener
    that sets SO_REUSEADDR, as ZeroMQ's do, may be bound to it all the same, life after life: only
    a second listener is refused (ip(7), SO_REUSEADDR).
    """

    _socket: socket.socket

    @property
    def number(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def close(self) -> None:
        self._socket.close()


def reserve() -> ReservedPort:
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind((HOST, 0))
    return ReservedPort(taken)
