"""What strangers on the operator's port can make it hold."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress

import pytest

from builders import free_port
from disttrain_operator.telemetry import server

_HALF_REQUESTS = 300
_PROBE = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_hundreds_of_half_requests_hold_few_connections_and_a_probe_still_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Only their number ends connections here.
    monkeypatch.setattr(server, "_SILENCE_SECONDS", 600.0)
    assert asyncio.run(_flooded()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX: "])
def test_a_connection_without_a_whole_request_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SILENCE_SECONDS", 1.0)
    assert asyncio.run(_said_to(sent)) == b""


async def _flooded() -> bytes:
    """What a probe is answered once only as many half requests are open as may be."""
    port = free_port.find()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_serving(port))
        readers = []
        for _ in range(_HALF_REQUESTS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET /metrics HTTP/1.1\r\nX: ")
            readers.append(reader)
        for reader in readers[: -server.MOST_CONNECTIONS]:
            assert await asyncio.wait_for(reader.read(), 20) == b""
        return await _answer(port, _PROBE)


async def _said_to(sent: bytes) -> bytes:
    port = free_port.find()
    async with _serving(port):
        return await asyncio.wait_for(_answer(port, sent), 20)


async def _answer(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await reader.read()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _serving(port: int) -> AbstractAsyncContextManager[None]:
    return server.serving(port, alive=lambda: True, ready=lambda: True, before_metrics=lambda: None)
