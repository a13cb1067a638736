"""Packets on their way into a socket that must not block its writer."""

import socket
from collections import deque


class Outbox:
    """Keeps what the socket does not take yet, in order.

    A fork server that still imports torch reads nothing, and its socket holds some 200 packets.
    """

    def __init__(self, connection: socket.socket) -> None:
        """`connection` keeps packets apart and does not block."""
        self._connection = connection
        self._waiting: deque[bytes] = deque()

    def put(self, packet: bytes) -> None:
        """Send the packet, at once or with a later `flush`."""
        self._waiting.append(packet)
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now. What a reader that is gone never got is dropped."""
        while self._waiting:
            try:
                self._connection.send(self._waiting[0])
            except BlockingIOError:
                return
            except ConnectionError:
                self._waiting.clear()
                return
            self._waiting.popleft()
