"""A connected socket that never blocks, plain or under TLS 1.3, and waiting for several of them."""

import math
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from disttrain.telemetry import logs
from disttrain.transport.errors import ConnectionLost, Refusal, UnreadableStream

LOG = logs.get(__name__)

Interest = tuple[int, int]
"""A descriptor, and the events of `poll` to wait for at it."""

_LONGEST_SECONDS = 3600.0
"""Of one wait; longer ones consist of several."""
_MOST_REASONS = 8
_ABOUT_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA")
"""In the names of OpenSSL's errors and alerts."""
_OF_NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "TLSV1_ALERT_PROTOCOL_VERSION"}
"""OpenSSL's names of what comes where the peer encrypts nothing."""
_NO_TLS_HERE = bytes.fromhex("15030300020246")
"""An alert of TLS, protocol_version: what both a peer that encrypts and one that does not know."""
_RECORD_BYTES = 16 << 10
"""What TLS encrypts at once. Shorter parts of a message are joined to one record."""


class SetUpErrors:
    """Logs why peers refuse each other, each reason once: somebody's set-up is wrong.

    Connections that are lost for other reasons come again.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._told: set[str] = set()

    def note(self, error: Exception) -> bool:
        """Whether a certificate was refused, here or by the peer."""
        if isinstance(error, UnreadableStream) and error.refusal is Refusal.ENCRYPTION:
            self._tell(str(error))
            return False
        cause = error.__cause__
        if not isinstance(cause, ssl.SSLError):
            return False
        why = getattr(cause, "verify_message", "") or cause.reason or ""
        is_of_certificate = isinstance(cause, ssl.SSLCertVerificationError)
        if not is_of_certificate and not any(word in why for word in _ABOUT_CERTIFICATES):
            return False
        self._tell(why)
        return True

    def _tell(self, why: str) -> None:
        if why not in self._told and len(self._told) < _MOST_REASONS:
            self._told.add(why)
            LOG.warning(self._what, reason=why)


class Stream:
    """Bytes in both directions. Belongs to one thread.

    Every method raises ConnectionLost when the peer or the network has ended the connection.
    """

    def __init__(
        self, connected: socket.socket, tls: ssl.SSLContext | None, *, is_server: bool
    ) -> None:
        connected.settimeout(0)
        self.is_encrypted = tls is not None
        self.wants_to_write = False
        """A handshake goes on when the socket takes more."""
        self._tls = None if tls is None else self._wrapped(connected, tls, is_server=is_server)
        self._socket = self._tls or connected

    @property
    def certificate(self) -> dict[str, object]:
        """What the peer has proven to be, as `SSLSocket.getpeercert` gives it; empty if plain."""
        return dict(self._tls.getpeercert() or {}) if self._tls is not None else {}

    def fileno(self) -> int:
        return self._socket.fileno()

    def shake_hands(self) -> bool:
        """One step of the TLS handshake; whether it is done."""
        if self._tls is None:
            return True
        self.wants_to_write = False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self.wants_to_write = True
            return False
        except ssl.SSLError as error:
            if error.reason in _OF_NO_TLS:
                detail = "the peer speaks no TLS; does it run with spec.transport.encryption none?"
                raise UnreadableStream(Refusal.ENCRYPTION, detail) from error
            raise ConnectionLost(str(error)) from error
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        return True

    def has_bytes(self) -> bool:
        """Whether `read_into` would find any, or the end."""
        waiting = self._tls.pending() if self._tls is not None else 0
        return waiting > 0 or bool(wait([(self.fileno(), select.POLLIN)], 0.0))

    def read_into(self, place: memoryview) -> int:
        """How many bytes there were, at most as many as the place has; 0 if none now."""
        try:
            count = self._socket.recv_into(place)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if not count:
            message = "the peer has closed the connection"
            raise ConnectionLost(message)
        return count

    def write(self, parts: Sequence[memoryview]) -> int:
        """How many of these bytes were taken, from the first on; 0 if none now.

        After 0 the next call must begin with the same bytes: TLS has encrypted some of them.
        """
        try:
            return self._write_tls(parts) if self.is_encrypted else self._socket.sendmsg(parts)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def tell_of_encryption(self) -> None:
        """Tell a peer that encrypts where this side does not, or the other way round. May fail."""
        with suppress(OSError):
            # Beside TLS, which was never begun.
            socket.socket.send(self._socket, _NO_TLS_HERE)

    def close(self) -> None:
        """At once; what was not sent is lost. May be called again."""
        self._socket.close()

    def _wrapped(
        self, connected: socket.socket, tls: ssl.SSLContext, *, is_server: bool
    ) -> ssl.SSLSocket:
        try:
            return tls.wrap_socket(connected, server_side=is_server, do_handshake_on_connect=False)
        except OSError as error:
            # A client may be gone before it is looked at.
            connected.close()
            raise ConnectionLost(str(error)) from error

    def _write_tls(self, parts: Sequence[memoryview]) -> int:
        if len(parts) > 1 and sum(part.nbytes for part in parts) <= _RECORD_BYTES:
            return self._socket.send(b"".join(parts))
        return self._socket.send(parts[0])


def wait(interests: Iterable[Interest], timeout: float) -> set[int]:
    """The descriptors at which something happened; none after `timeout` seconds."""
    poll = select.poll()
    for descriptor, events in interests:
        poll.register(descriptor, events)
    seconds = min(max(0.0, timeout), _LONGEST_SECONDS)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1000))}


def deadline(timeout: float) -> float:
    """The monotonic time at which a timeout from now ends."""
    return time.monotonic() + timeout


def remaining(end: float) -> float:
    """Seconds until a deadline; 0 if it has passed."""
    return max(0.0, end - time.monotonic())


class Bell:
    """Ends a thread's wait from another thread: a descriptor that can be waited for beside sockets.

    `ring` and `close` may be called from any thread, also again and after `close`.
    """

    def __init__(self) -> None:
        # Whoever rings must not write into what the number means after it was closed.
        self._lock = threading.Lock()
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Readable from a ring until it is heard; -1 after `close`."""
        return self._descriptor

    def ring(self) -> None:
        """End the wait, or the next one if nobody waits."""
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def hear(self) -> None:
        """All rings until now have been noticed."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        """Nothing is to be ended any more."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
