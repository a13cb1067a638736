"""The operator's door to an API server that is slow to say farewell: over TLS, on one machine."""

import asyncio
import gc
import random
import socket
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from builders import tls
from disttrain_operator.cluster import client as client_module
from disttrain_operator.cluster.client import Client, Query, Request
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.kinds import Kind

QUERY = Query(kind=Kind.Service, namespace="here")
EVENT = b'{"type": "ADDED", "object": {"metadata": {"name": "one", "resourceVersion": "6"}}}\n'
HEADER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n"

pytestmark = pytest.mark.skipif(tls.OPENSSL is None, reason="needs openssl to make a certificate")


@pytest.fixture
def credentials(tmp_path: Path) -> Iterator[Credentials]:
    """Of a server that begins each answer and then neither reads nor writes any more."""
    context, done = tls.certify(tmp_path), threading.Event()

    def serve(listening: socket.socket) -> None:
        with context.wrap_socket(listening, server_side=True) as door:
            connection, _ = door.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(HEADER + EVENT)
                done.wait()

    listening = socket.create_server(("127.0.0.1", 0))
    address = f"https://127.0.0.1:{listening.getsockname()[1]}"
    server = threading.Thread(target=serve, args=(listening,))
    server.start()
    yield Credentials(address, (tmp_path / "ca.crt").read_bytes())
    done.set()
    server.join()


async def leave_a_watch(client: Client) -> None:
    async with aclosing(client.watch(QUERY, "5")) as events:
        assert (await anext(events)).version == "6"


async def leave_a_list_that_is_too_large(client: Client) -> None:
    with pytest.raises(client_module._TooLarge):
        await client._call(Request("GET", "/", {}), largest=1)


@pytest.mark.parametrize("question", [leave_a_watch, leave_a_list_that_is_too_large])
def test_what_is_left_in_the_middle_leaves_no_connection(
    credentials: Credentials, question: Callable[[Client], Awaitable[None]]
) -> None:
    """A farewell over TLS waits for the other side's: a socket stayed open after the loop's end."""

    async def scenario() -> None:
        async with asyncio.timeout(20), Client(credentials, random.Random(0)) as client:
            await question(client)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(scenario())
        gc.collect()
    assert [str(each.message) for each in told] == []
