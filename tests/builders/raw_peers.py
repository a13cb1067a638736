"""Peers that write bytes of their own to a listener's socket, plain or under TLS."""

import socket
import ssl
from collections.abc import Mapping

from builders.transports import PATIENCE
from disttrain.job.credentials import Credentials
from disttrain.transport import framing, tls
from disttrain.transport.header import Header, Role, job_digest

JOB = job_digest("job-1")


def connect(address: str) -> socket.socket:
    """A plain connection; nothing is sent."""
    if address.startswith("ipc://"):
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(PATIENCE)
        made.connect(address.removeprefix("ipc://"))
        return made
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


def encrypted(address: str, credentials: Credentials) -> ssl.SSLSocket:
    """A connection that shakes hands when its owner does; `do_handshake` may raise."""
    context = tls.client_context(credentials)
    return context.wrap_socket(connect(address), do_handshake_on_connect=False)


def greeted(address: str, credentials: Mapping[Role, Credentials] | None) -> socket.socket:
    """A connection of somebody who may speak, of a replica under TLS.

    The listener's thread has to go on for the handshake: call this from another one.
    """
    if credentials is None:
        made = connect(address)
    else:
        made = encrypted(address, credentials[Role.REPLICA])
        made.do_handshake()
    made.sendall(framing.greeting(JOB))
    return made


def a_head(header: Header, *place: int) -> bytes:
    """The header as it travels; `place` as of `framing.encode`."""
    return framing.encode(header, job=JOB, place=(place[0], place[1], place[2]))


def has_ended(connection: socket.socket) -> bool:
    """Whether the listener closes the connection, in time."""
    connection.settimeout(PATIENCE)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True
