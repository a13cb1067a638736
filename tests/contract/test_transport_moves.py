"""Attempts to connect that come to nothing, as to a pod that is gone."""

import socket
import time
from collections.abc import Iterator

import pytest

from builders.transports import a_config, a_header, opened
from disttrain.transport import addresses, dialer
from disttrain.transport.config import TransportKind
from disttrain.transport.errors import ConnectionLost, TransportClosed
from disttrain.transport.header import Role, Verb
from disttrain.transport.stream import Stream

PATIENCE = 30.0
"""The system itself would wait for two minutes."""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Where attempts to connect are dropped: the queue of those who wait to be accepted is full."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.settimeout(0)
            one.connect_ex(listener.getsockname())
            waiting.append(one)
        yield listener
        for one in waiting:
            one.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The sockets that were opened to connect with."""
    found: list[socket.socket] = []
    really_open = addresses.open_socket

    def noted(family: socket.AddressFamily) -> socket.socket:
        found.append(really_open(family))
        return found[-1]

    monkeypatch.setattr(addresses, "open_socket", noted)
    return found


def test_an_attempt_that_nobody_answers_is_soon_followed_by_another(
    silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name means another address from the second attempt on, as that of a pod that moved."""
    with opened(a_config(TransportKind.TCP)) as serving:
        listener = serving.listen("tcp://127.0.0.1:0")
        there = ("127.0.0.1", int(listener.address.rpartition(":")[2]))
        answers = iter([[(socket.AF_INET, silent.getsockname())]])
        monkeypatch.setattr(
            addresses, "resolve", lambda _: next(answers, [(socket.AF_INET, there)])
        )
        with opened(a_config(TransportKind.TCP, role=Role.REPLICA)) as transport:
            channel = transport.connect("tcp://a-pod:7071", Role.SHARD)
            channel.send(a_header(Verb.HELLO))
            began = time.monotonic()
            request = None
            while request is None and time.monotonic() - began < PATIENCE:
                assert channel.receive(0.05) is None
                request = listener.receive(0.05)
            assert request is not None, "it waits for the first attempt"
            assert request.header.verb == Verb.HELLO


def test_a_name_that_is_slow_to_be_looked_up_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(_: addresses.Address) -> list[tuple[socket.AddressFamily, object]]:
        time.sleep(2.0)
        raise OSError

    monkeypatch.setattr(addresses, "resolve", slow)
    with opened(a_config(TransportKind.TCP, role=Role.REPLICA)) as transport:
        channel = transport.connect("tcp://a-pod:7071", Role.SHARD)
        began = time.monotonic()
        channel.send(a_header(Verb.HELLO))
        assert channel.receive(0.0) is None
        assert time.monotonic() - began < 1.0


def test_a_listener_on_all_addresses_is_reached_over_ipv4_and_ipv6() -> None:
    with (
        opened(a_config(TransportKind.TCP)) as serving,
        opened(a_config(TransportKind.TCP, role=Role.REPLICA)) as transport,
    ):
        listener = serving.listen("tcp://*:0")
        port = listener.address.rpartition(":")[2]
        hosts = ["127.0.0.1", "localhost"] + (["[::1]"] if socket.has_dualstack_ipv6() else [])
        for host in hosts:
            channel = transport.connect(f"tcp://{host}:{port}", Role.SHARD)
            channel.send(a_header(Verb.HELLO))
            while (request := listener.receive(0.01)) is None:
                channel.receive(0.01)
            assert request.header.verb == Verb.HELLO


def test_a_socket_of_which_no_stream_can_be_made_is_closed(
    made: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> None:
        message = "gone before it is looked at"
        raise ConnectionLost(message)

    monkeypatch.setattr(dialer, "Stream", gone)
    with socket.create_server(("127.0.0.1", 0)) as serving:
        there = addresses.parse(f"tcp://127.0.0.1:{serving.getsockname()[1]}")
        dialing = dialer.Dialer(there, None, lambda _: None)
        end = time.monotonic() + PATIENCE
        while len(made) < 2:
            assert time.monotonic() < end
            assert dialing.advance() is None
        dialing.close()
    assert [each.fileno() for each in made] == [-1, -1]


def test_what_is_connected_while_another_thread_closes_is_closed_too(
    made: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = dialer.Dialer.advance
    with (
        socket.create_server(("127.0.0.1", 0)) as serving,
        opened(a_config(TransportKind.TCP, role=Role.REPLICA)) as transport,
    ):
        channel = transport.connect(f"tcp://127.0.0.1:{serving.getsockname()[1]}", Role.SHARD)

        def closed_meanwhile(one: dialer.Dialer) -> Stream | None:
            channel.close()
            return advance(one)

        monkeypatch.setattr(dialer.Dialer, "advance", closed_meanwhile)
        with pytest.raises(TransportClosed):
            channel.receive(0.0)
        assert made
        # Before the transport closes what it has.
        assert [each.fileno() for each in made] == [-1] * len(made)
