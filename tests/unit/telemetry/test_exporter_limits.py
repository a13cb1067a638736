"""What strangers on the metrics port can make a process hold."""

import contextlib
import os
import socket
import threading
import time
import urllib.request
from contextlib import ExitStack

import pytest

from builders import launches
from disttrain.telemetry import exporter
from disttrain.telemetry.exporter import Served

_HALF_REQUESTS = 300


@pytest.fixture
def served() -> Served:
    return Served("127.0.0.1:0")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's silence ends a connection here, only their number."""
    monkeypatch.setattr(exporter, "_SILENCE_SECONDS", 600)


def test_hundreds_of_half_requests_hold_few_threads_and_a_scrape_still_answers(
    patient: None, served: Served
) -> None:
    threads, descriptors = threading.active_count(), _descriptors()
    with ExitStack() as open_ones:
        for _ in range(_HALF_REQUESTS):
            peer = open_ones.enter_context(_connection(served.address))
            # One that was ended already is what is asked for.
            with contextlib.suppress(OSError):
                peer.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert "disttrain_metrics_connections_cut_total" in _scrape(served.address)
        # A thread may leave a moment after its connection.
        launches.wait_until(
            lambda: threading.active_count() - threads <= exporter.MOST_CONNECTIONS, "few threads"
        )
        held_here = _HALF_REQUESTS
        assert _descriptors() - descriptors - held_here <= exporter.MOST_CONNECTIONS


def test_a_connection_that_says_nothing_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "_SILENCE_SECONDS", 0.05)
    with _connection(Served("127.0.0.1:0").address) as peer:
        assert peer.recv(1) == b""
    assert _scrape(served.address)


def test_a_peer_that_breaks_off_is_counted_and_leaves_no_traceback(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    with _connection(served.address) as peer:
        # Closing with a linger of 0 resets the connection under the reader.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    end = time.monotonic() + 20
    while 'cut_total{reason="error"} 1.0' not in _scrape(served.address):
        assert time.monotonic() < end
    assert "Traceback" not in capfd.readouterr().err


def _connection(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def _scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - A count needs no paths.
