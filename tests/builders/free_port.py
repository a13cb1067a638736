"""A port of this machine that nobody listens on."""

import socket


def find() -> int:
    """Free at this moment: another process may take it."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
