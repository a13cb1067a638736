"""ZeroMQ sockets with every limit set, that move frames and translate errors."""

import math
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import uuid4

import zmq

from disttrain.transport import authentication, descriptors
from disttrain.transport.bell import Bell
from disttrain.transport.config import CurveKeys, TransportConfig, TransportKind
from disttrain.transport.errors import AddressRefused, TransportClosed
from disttrain.transport.header import Role

Frame = zmq.Frame

_HEARTBEAT_MS = 5_000
_HEARTBEAT_TIMEOUT_MS = 30_000
"""A connection without any sign of life for this long is closed; the client connects again."""
_CONNECT_TIMEOUT_MS = 3_000
"""The system waits for minutes for an address that swallows packets, as that of a pod that was
moved does; its name is only looked up again for the next attempt."""
_RECONNECT_MS = 20
_RECONNECT_LARGEST_MS = 1_000
_DOMAIN = "disttrain"
_MOST_FRAMES = 4
"""More frames than any message has; further ones are read and thrown away."""
_CURVE_BYTES = 33
"""Added to a frame by encryption: command name, nonce, authenticator and flags (CurveZMQ, RFC 26,
MESSAGE)."""
_MOST_OVERTIME = 64
"""Messages that are looked at after the timeout, should those before be worth nothing."""


class Socket:
    """One socket with its options; belongs to one thread."""

    def __init__(self, raw: "zmq.Socket[bytes]") -> None:
        self.raw = raw
        self.bell = Bell()
        """Ends a `receive` that waits, from any thread."""

    def receive(self, timeout: float) -> list[Frame] | None:
        """The frames of the next message (not all, if far too many).

        None after the timeout, or when somebody has rung.
        """
        frame = self._receive_now()
        if frame is None and timeout > 0 and self._poll(timeout):
            frame = self._receive_now()
        if frame is None:
            return None
        frames = [frame]
        while frame.more:
            frame = self.raw.recv(copy=False)
            if len(frames) <= _MOST_FRAMES:
                frames.append(frame)
        return frames

    def messages(self, timeout: float) -> Iterator[list[Frame]]:
        """What comes until the timeout, and then a few messages that are there already.

        For a caller who wants one that is worth something: others may come without end.
        """
        end, overtime = deadline(timeout), 0
        while overtime < _MOST_OVERTIME and (frames := self.receive(remaining(end))) is not None:
            yield frames
            overtime += remaining(end) == 0.0

    def send(self, frames: Sequence[bytes | memoryview], *, copy: bool) -> bool:
        """Queues one message; False if the queue stays full or the peer is gone.

        With `copy=False` a long last frame is sent from where it lies.
        """
        try:
            for frame in frames[:-1]:
                self.raw.send(frame, zmq.SNDMORE)
            self.raw.send(frames[-1], 0, copy)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise _closed(error) from error
        return True

    @property
    def address(self) -> str:
        return self.raw.getsockopt_string(zmq.LAST_ENDPOINT)

    def close(self) -> None:
        """Throws away what was not sent."""
        self.raw.close(linger=0)
        self.bell.close()

    def _receive_now(self) -> Frame | None:
        try:
            return self.raw.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        except zmq.ZMQError as error:
            raise _closed(error) from error

    def _poll(self, timeout: float) -> bool:
        rung = self.bell.fileno()
        ready = _ready([self.raw, rung], timeout)
        if rung in ready:
            self.bell.hear()
        return self.raw in ready


class Sockets:
    """All sockets of one process, with one I/O thread."""

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        descriptors.raise_limit()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, descriptors.MOST_SOCKETS)
        self._authenticates = False

    def connect(self, address: str, listener: Role) -> Socket:
        """A DEALER, whose peer knows it by a random name over all of its connections.

        What is said to a coordinator is repeated, and it may be away for long: sending never waits.
        """
        patience = self._config.send_timeout if listener is not Role.COORDINATOR else timedelta()
        raw = self._open(zmq.DEALER)
        raw.setsockopt(zmq.ROUTING_ID, b"c" + uuid4().bytes)
        raw.setsockopt(zmq.SNDTIMEO, int(patience.total_seconds() * 1000))
        if self._config.curve:
            _show_client_keys(raw, self._config.curve, listener)
        try:
            raw.connect(address)
        except zmq.ZMQError as error:
            raw.close(linger=0)
            raise _refused("connect to", address, error) from error
        return Socket(raw)

    def listen(self, address: str, largest_bytes: int | None = None) -> Socket:
        """A ROUTER, which reports peers that are gone, and never blocks.

        A peer that announces a frame of more than `largest_bytes` is disconnected.
        """
        raw = self._open(zmq.ROUTER, largest_bytes)
        raw.setsockopt(zmq.ROUTER_MANDATORY, 1)
        raw.setsockopt(zmq.ROUTER_HANDOVER, 1)
        raw.setsockopt(zmq.SNDTIMEO, 0)
        if self._config.curve:
            self._authenticate(self._config.curve)
            _show_server_keys(raw, self._config.curve)
        try:
            raw.bind(address)
        except zmq.ZMQError as error:
            raw.close(linger=0)
            raise _refused("listen on", address, error) from error
        return Socket(raw)

    def wait(self, sockets: Sequence[Socket], timeout: float) -> list[Socket]:
        """Those with something to receive. Threads may wait at once, each for its own sockets."""
        if any(socket.raw.closed for socket in sockets):
            message = "waited for what was closed before"
            raise TransportClosed(message)
        ready = _ready([socket.raw for socket in sockets], timeout)
        return [socket for socket in sockets if socket.raw in ready]

    def close(self) -> None:
        """Closes every socket. No other thread may be using one."""
        self._context.destroy(linger=0)

    def _authenticate(self, keys: CurveKeys) -> None:
        if not self._authenticates:
            authentication.start(self._context, keys.allowed)
        self._authenticates = True

    def _open(self, kind: int, largest_bytes: int | None = None) -> "zmq.Socket[bytes]":
        raw = self._context.socket(kind)
        largest = self._config.limits.payload_bytes if largest_bytes is None else largest_bytes
        # ZeroMQ compares the frame as it travels.
        raw.setsockopt(zmq.MAXMSGSIZE, largest + (_CURVE_BYTES if self._config.curve else 0))
        for option, value in _options(self._config).items():
            raw.setsockopt(option, value)
        return raw


def _ready(sources: Sequence["zmq.Socket[bytes] | int"], timeout: float) -> list[object]:
    """Sockets and descriptors that can be read from, once there is one."""
    wanted = [(source, zmq.POLLIN) for source in sources]
    try:
        return [one for one, _ in zmq.zmq_poll(wanted, max(0, math.ceil(timeout * 1000)))]
    except zmq.ZMQError as error:
        raise _closed(error) from error


def deadline(timeout: float) -> float:
    """The monotonic time at which a timeout from now ends."""
    return time.monotonic() + timeout


def remaining(end: float) -> float:
    """Seconds until a deadline; 0 if it has passed."""
    return max(0.0, end - time.monotonic())


def _options(config: TransportConfig) -> dict[int, int]:
    limits = config.limits
    by_reference = config.kind is TransportKind.SHARED_MEMORY
    return {
        zmq.LINGER: 0,
        zmq.SNDHWM: limits.header_queue if by_reference else limits.send_queue,
        zmq.RCVHWM: limits.header_queue if by_reference else limits.receive_queue,
        zmq.HANDSHAKE_IVL: round(limits.handshake.total_seconds() * 1000),
        zmq.HEARTBEAT_IVL: _HEARTBEAT_MS,
        zmq.HEARTBEAT_TIMEOUT: _HEARTBEAT_TIMEOUT_MS,
        zmq.CONNECT_TIMEOUT: _CONNECT_TIMEOUT_MS,
        zmq.RECONNECT_IVL: _RECONNECT_MS,
        zmq.RECONNECT_IVL_MAX: _RECONNECT_LARGEST_MS,
    }


def _show_client_keys(raw: "zmq.Socket[bytes]", keys: CurveKeys, listener: Role) -> None:
    expected = keys.listeners.get(listener)
    if expected is None:
        raw.close(linger=0)
        message = f"the keys of this process name none for a listening {listener.name.lower()}"
        raise AddressRefused(message)
    raw.setsockopt_string(zmq.CURVE_PUBLICKEY, keys.public)
    raw.setsockopt_string(zmq.CURVE_SECRETKEY, keys.secret)
    raw.setsockopt_string(zmq.CURVE_SERVERKEY, expected)


def _show_server_keys(raw: "zmq.Socket[bytes]", keys: CurveKeys) -> None:
    # Without an answer about a key nobody is let in, instead of everybody.
    raw.setsockopt_string(zmq.ZAP_DOMAIN, _DOMAIN)
    raw.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    raw.setsockopt(zmq.CURVE_SERVER, 1)
    raw.setsockopt_string(zmq.CURVE_SECRETKEY, keys.secret)


def _closed(error: zmq.ZMQError) -> TransportClosed:
    return TransportClosed(f"used after it was closed: {error}")


def _refused(action: str, address: str, error: zmq.ZMQError) -> AddressRefused:
    local = address.startswith("ipc:")
    remedy = "a Unix socket's path has at most 107 bytes" if local else "is the port free?"
    return AddressRefused(f"cannot {action} {address!r}: {error}; {remedy}")
