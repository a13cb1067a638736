"""A TCP port that is nobody else's while the launcher lives, whoever listens at it meanwhile."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

HOST = "127.0.0.1"


@contextmanager
def reserve() -> Iterator[int]:
    """Keep a port for the block, by a socket that is bound and never listens; its number.

    The kernel gives this port to nobody who asks for any free one, nor to a connection. A listener
    that sets SO_REUSEADDR, as ours do, may be bound to it all the same, incarnation after
    incarnation: only a second listener is refused (ip(7), SO_REUSEADDR).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((HOST, 0))
        yield taken.getsockname()[1]
