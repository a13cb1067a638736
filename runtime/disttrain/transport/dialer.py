"""Connects to a listener, again and again, in steps that never block."""

import errno
import os
import random
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from disttrain.transport import addresses
from disttrain.transport.addresses import Address
from disttrain.transport.errors import ConnectionLost
from disttrain.transport.stream import Bell, Interest, SetUpErrors, Stream, wait
from disttrain.transport.tls import Contexts

_CONNECT_SECONDS = 3.0
"""The system waits for minutes for an address that swallows packets, as that of a pod that was
moved does; its name is only looked up again for the next attempt."""
_SHORTEST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0

Places = list[tuple[socket.AddressFamily, object]]


class Dialer:
    """One attempt after another, with pauses that double. Belongs to one thread."""

    def __init__(
        self,
        address: Address,
        tls: Contexts | None,
        check: Callable[[Stream], None],
    ) -> None:
        """`check` raises ConnectionLost if the peer is not the one that is meant."""
        self._address = address
        self._tls = tls
        self._check = check
        self._has_looked_up: Bell | None = None
        """While a name is looked up."""
        self._pause = _SHORTEST_PAUSE
        self._next_attempt = 0.0
        self._deadline = 0.0
        self._places: Places = []
        self._looked_up: deque[Places | OSError] = deque()
        self._connecting: socket.socket | None = None
        self._stream: Stream | None = None
        self._set_up_errors = SetUpErrors(f"no connection to {address.text}")

    def advance(self) -> Stream | None:
        """The next step, if it is due; a stream once one is connected and has shaken hands."""
        try:
            return self._advance()
        except (ConnectionLost, OSError) as error:
            self.retreat(error)
            return None

    def retreat(self, why: Exception) -> None:
        """Give up the attempt, or the stream that came of it; the next one follows a pause.

        Pauses differ, so that those who lost the same listener do not all come back at once.
        """
        self._drop()
        self._set_up_errors.note(why)
        pause = self._pause * random.uniform(0.5, 1.0)
        self._next_attempt = time.monotonic() + pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def succeed(self) -> None:
        """The peer has answered: after a lost connection the first pause is short again."""
        self._pause = _SHORTEST_PAUSE

    def interest(self) -> Interest | None:
        """A descriptor, and what to wait for at it; None while there is nothing but time."""
        if self._has_looked_up is not None:
            return self._has_looked_up.fileno(), select.POLLIN
        if self._connecting is not None:
            return self._connecting.fileno(), select.POLLOUT
        if self._stream is not None:
            events = select.POLLOUT if self._stream.wants_to_write else select.POLLIN
            return self._stream.fileno(), events
        return None

    def due_in(self) -> float:
        """Seconds until something is due whatever happens."""
        if self._has_looked_up is not None:
            return _CONNECT_SECONDS
        active = self._connecting is not None or self._stream is not None
        end = self._deadline if active else self._next_attempt
        return max(0.0, end - time.monotonic())

    def close(self) -> None:
        self._drop()
        self._end_looking_up()

    def _advance(self) -> Stream | None:
        now = time.monotonic()
        if self._connecting is None and self._stream is None:
            if now < self._next_attempt or not self._has_places():
                return None
            self._begin(now)
        if now > self._deadline:
            message = "no answer in time"
            raise ConnectionLost(message)
        if self._connecting is not None:
            self._finish(self._connecting)
        if self._stream is None or not self._stream.shake_hands():
            return None
        self._check(self._stream)
        stream, self._stream = self._stream, None
        return stream

    def _has_places(self) -> bool:
        """Whether it is known where to connect to; a name is looked up beside everything else."""
        if self._looked_up:
            self._end_looking_up()
            found = self._looked_up.popleft()
            if isinstance(found, OSError):
                raise found
            self._places = found
        if self._places or self._has_looked_up is not None:
            return bool(self._places)
        if not self._address.has_name:
            self._places = addresses.resolve(self._address)
            return True
        self._has_looked_up = bell = Bell()
        threading.Thread(target=self._look_up, args=(bell,), daemon=True).start()
        return False

    def _look_up(self, done: Bell) -> None:
        try:
            self._looked_up.append(addresses.resolve(self._address))
        except (OSError, ValueError) as error:
            # ValueError: no name at all, such as one with two dots in a row.
            self._looked_up.append(OSError(str(error)))
        done.ring()

    def _end_looking_up(self) -> None:
        if self._has_looked_up is not None:
            self._has_looked_up.close()
        self._has_looked_up = None

    def _begin(self, now: float) -> None:
        family, where = self._places.pop(0)
        self._deadline = now + _CONNECT_SECONDS
        self._connecting = addresses.open_socket(family)
        code = self._connecting.connect_ex(where)  # type: ignore[arg-type]  # As the family takes.
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))

    def _finish(self, made: socket.socket) -> None:
        if not wait([(made.fileno(), select.POLLOUT)], 0.0):
            return
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._places.clear()
        context = None if self._tls is None else self._tls.current
        # Until there is a stream to close, it is the socket that has to be closed.
        self._stream = Stream(made, context, is_server=False)
        self._connecting = None

    def _drop(self) -> None:
        for one in (self._connecting, self._stream):
            if one is not None:
                one.close()
        self._connecting = self._stream = None
