"""Serves one registry to Prometheus over HTTP, on a thread of its own, and says how the process is.

/healthz answers 200 while the process lives, /ready when it does its work and 503 before; every
other path is the metrics.
"""

import socketserver
import threading
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Self

from prometheus_client import CollectorRegistry, MetricsHandler

from disttrain.job import pod_layout
from disttrain.telemetry.errors import MetricsAddressError


class Readiness:
    """Whether a process does its work; set once by its own thread, read by those of HTTP."""

    is_ready = False


class _Server(ThreadingHTTPServer):
    """The standard server without its look-up of the host's name, which can take seconds."""

    daemon_threads = True

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)


class Exporter:
    """Answers HTTP requests with the registry's metrics until it is closed or the process ends.

    `address` is the real HOST:PORT. Start it after the last fork: it has a thread.
    """

    def __init__(
        self, address: str, registry: CollectorRegistry, readiness: Readiness | None = None
    ) -> None:
        host, port = _parse(address)
        handler = _handler(registry, readiness or Readiness())
        try:
            self._server = _Server((host, port), handler)
        except OSError as error:
            message = f"metrics cannot be served on {address}: {error.strerror}; choose port 0"
            raise MetricsAddressError(message) from error
        self.address = f"{host}:{self._server.server_port}"
        threading.Thread(
            target=self._server.serve_forever, name="metrics-exporter", daemon=True
        ).start()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(address: str, registry: CollectorRegistry, readiness: Readiness | None = None) -> str:
    """Serve `registry` on `address` (HOST:PORT, 0 takes a free port) for the rest of the process.

    Returns the real address. Raises MetricsAddressError when the address cannot be had.
    """
    return Exporter(address, registry, readiness).address


def _handler(registry: CollectorRegistry, readiness: Readiness) -> type[MetricsHandler]:
    class Handler(MetricsHandler):
        """The metrics, and the two questions of a kubelet."""

        def do_GET(self) -> None:  # noqa: N802 - the base class wants this name
            path = self.path.partition("?")[0]
            if path == pod_layout.HEALTH_PATH:
                self._say(HTTPStatus.OK, "alive")
            elif path == pod_layout.READY_PATH and readiness.is_ready:
                self._say(HTTPStatus.OK, "ready")
            elif path == pod_layout.READY_PATH:
                self._say(HTTPStatus.SERVICE_UNAVAILABLE, "not ready")
            else:
                super().do_GET()

        def _say(self, status: HTTPStatus, word: str) -> None:
            content = f"{word}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    Handler.registry = registry
    return Handler


def _parse(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        message = f"a metrics address must be HOST:PORT, got {address!r}"
        raise MetricsAddressError(message)
    return host, int(port)
