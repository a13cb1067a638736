"""A port that is kept for a listener which is not there yet, or not there any more."""

import errno
import socket
import struct

import pytest

from disttrain.launcher import run
from disttrain.launcher.run import HOST

IP_LOCAL_PORT_RANGE = 51
"""Of Linux 6.3: which ports `any port` means for this socket; the highest and the lowest."""


def bind_any_port_of(sock: socket.socket, port: int) -> None:
    """Ask for any free port where there is but one."""
    try:
        sock.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("I", port << 16 | port))
    except OSError:
        pytest.skip("this kernel cannot narrow the range of ports for one socket")
    sock.bind((HOST, 0))


def test_nobody_gets_it_who_asks_for_any_port() -> None:
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with run.reserve_port() as port:
            with pytest.raises(OSError, match="in use") as refused:
                bind_any_port_of(stranger, port)
            assert refused.value.errno == errno.EADDRINUSE
        bind_any_port_of(stranger, port)


def test_one_listener_after_the_other_gets_it_by_its_number() -> None:
    with run.reserve_port() as port:
        for _ in range(2):
            with socket.create_server((HOST, port)), pytest.raises(OSError, match="in use"):
                socket.create_server((HOST, port))
