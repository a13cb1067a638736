"""Serves a process's metrics to Prometheus over HTTP, on a thread of its own, and how it is.

/healthz answers 200 while the process lives and its main loop goes on, /ready when it does its
work; both answer 503 otherwise. Every other path is the metrics. Everybody on the pod network may
connect, so what a stranger can hold is bounded: a few connections, each for a few seconds.
"""

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, MetricsHandler
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from disttrain.errors import FinalError
from disttrain.job import pod_layout
from disttrain.telemetry.metrics import Metrics

MOST_CONNECTIONS = 32
"""Open at once. One more ends the oldest, which a scrape, done in milliseconds, never is."""
_SILENCE_SECONDS = 5
"""A connection that neither sends nor takes anything for so long is closed."""
_EARLY_POLL_SECONDS = 0.05
"""How soon the address is free for the metrics."""


_Request = socket.socket | tuple[bytes, socket.socket]
"""The standard library's; never the second, which is UDP's."""


class MetricsAddressError(FinalError):
    """The address for Prometheus is malformed or taken."""


def connections_cut(registry: CollectorRegistry) -> Counter:
    """By `reason`: limit, too many at once; error, the peer went or was not understood."""
    text = "Connections to the metrics port that ended without an answer."
    return Counter("disttrain_metrics_connections_cut", text, ["reason"], registry=registry)


class _Server(ThreadingHTTPServer):
    """The standard server, bounded, and without its look-up of the host's name."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], handler: type[MetricsHandler], cut: Counter
    ) -> None:
        self._cut = cut
        self._open: dict[socket.socket, None] = {}
        self._changed = threading.Condition()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without the name, whose look-up can take seconds."""
        socketserver.TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)

    def get_request(self) -> tuple[socket.socket, object]:
        connection, peer = super().get_request()
        with self._changed:
            while len(self._open) >= MOST_CONNECTIONS:
                self._end(next(iter(self._open)))
                self._changed.wait(timeout=_SILENCE_SECONDS)
            self._open[connection] = None
        return connection, peer

    def close_request(self, request: _Request) -> None:
        super().close_request(request)
        with self._changed:
            self._open = {one: None for one in self._open if one is not request}
            self._changed.notify()

    def handle_error(self, request: _Request, client_address: object) -> None:
        """A peer that went away is counted; a traceback for each would fill the log."""
        del request, client_address
        self._cut.labels("error").inc()

    def _end(self, connection: socket.socket) -> None:
        """Its thread, which reads or writes, then closes it."""
        self._cut.labels("limit").inc()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class Health:
    """How a process is: set by its main thread, read by those of HTTP."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_ready = False
        """Whether the process does its work."""
        self._clock = clock
        self._limit_seconds: float | None = None
        self._iterated = 0.0

    def begin(self, limit_seconds: float) -> None:
        """The main loop begins; an iteration that takes longer than this hangs."""
        self._iterated = self._clock()
        self._limit_seconds = limit_seconds

    def iterated(self) -> None:
        self._iterated = self._clock()

    def end(self) -> None:
        """The main loop is over: what follows may take as long as it does."""
        self._limit_seconds = None

    @property
    def is_alive(self) -> bool:
        """Whether the main loop goes on; before it begins and after its end there is no telling."""
        limit = self._limit_seconds
        return limit is None or self._clock() - self._iterated <= limit


_early: list[_Server] = []
"""What answers before the process serves metrics."""


def answer_early(address: str) -> Health:
    """Answer how the process is until it serves its metrics; it is not ready yet.

    Raises MetricsAddressError.
    """
    health, registry = Health(), CollectorRegistry()
    server = _listening(address, registry, health)
    _early.append(server)
    threading.Thread(
        target=server.serve_forever, args=(_EARLY_POLL_SECONDS,), name="early-health", daemon=True
    ).start()
    return health


def _end_early() -> None:
    """Free the address."""
    while _early:
        server = _early.pop()
        server.shutdown()
        server.server_close()


class Served(Collector):
    """Answers with the metrics of the latest update for the rest of the process.

    One thread at a time makes the updates. Start it after the last fork: it has a thread.
    """

    def __init__(self, address: str, metrics: Metrics = ()) -> None:
        """`address`: HOST:PORT, where 0 takes a free port. Raises MetricsAddressError."""
        self._metrics = tuple(metrics)
        self.health = Health()
        """Of the process."""
        registry = CollectorRegistry()
        registry.register(self)
        _end_early()
        server = _listening(address, registry, self.health)
        self.address = f"{_parse(address)[0]}:{server.server_port}"
        """The real one."""
        threading.Thread(target=server.serve_forever, name="metrics-exporter", daemon=True).start()

    def serve(self, metrics: Metrics) -> None:
        """Serve these from now on; what falls of a counter is kept, since its series only grow."""
        before = {
            _series(sample): sample.value for each in self._metrics for sample in each.samples
        }
        latest = tuple(metrics)
        for each in latest:
            if each.type == "counter":
                each.samples = [
                    sample._replace(value=max(sample.value, before.get(_series(sample), 0.0)))
                    for sample in each.samples
                ]
        self._metrics = latest

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Called by the threads of scrapes."""
        return iter(self._metrics)


def _series(sample: Sample) -> tuple[str, ...]:
    return (sample.name, *sample.labels.values())


def _handler(registry: CollectorRegistry, health: Health) -> type[MetricsHandler]:
    class Handler(MetricsHandler):
        """The metrics, and the two questions of a kubelet."""

        timeout = _SILENCE_SECONDS

        def do_GET(self) -> None:  # noqa: N802 - the base class wants this name
            path = self.path.partition("?")[0]
            if path == pod_layout.HEALTH_PATH:
                self._say("alive", "hangs", is_well=health.is_alive)
            elif path == pod_layout.READY_PATH:
                self._say("ready", "not ready", is_well=health.is_ready)
            else:
                super().do_GET()

        def _say(self, word: str, otherwise: str, *, is_well: bool) -> None:
            content = f"{word if is_well else otherwise}\n".encode()
            self.send_response(HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    Handler.registry = registry
    return Handler


def _listening(address: str, registry: CollectorRegistry, health: Health) -> _Server:
    host, port = _parse(address)
    try:
        return _Server((host, port), _handler(registry, health), connections_cut(registry))
    except OSError as error:
        raise MetricsAddressError(
            f"metrics cannot be served on {address}: {error.strerror}; choose port 0"
        ) from error


def _parse(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise MetricsAddressError(f"a metrics address must be HOST:PORT, got {address!r}")
    return host, int(port)
