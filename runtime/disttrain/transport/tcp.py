"""Payloads inside the messages: between machines, and for short payloads everywhere."""

import math
import select
import time
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol, TypeVar, cast
from weakref import WeakSet

from disttrain.transport import addresses, descriptors, framing, tls
from disttrain.transport.config import TransportConfig
from disttrain.transport.dialer import Dialer
from disttrain.transport.errors import (
    ConnectionLost,
    MalformedMessage,
    Refusal,
    TransportClosed,
    TransportTimeout,
    UnreadableStream,
)
from disttrain.transport.framing import MOST_REFUSED, Inbox, Outbox, Received, require_inline
from disttrain.transport.header import Header, Role, job_digest
from disttrain.transport.interface import (
    Channel,
    Destination,
    Endpoint,
    Listener,
    Memory,
    Message,
    Payload,
    Slice,
)
from disttrain.transport.listener import SocketListener
from disttrain.transport.memory import OrdinaryMemory
from disttrain.transport.stream import Bell, Interest, Stream, deadline, remaining, wait

Made = TypeVar("Made", bound=Endpoint)


class _SocketEndpoint(Protocol):
    """What both kinds of endpoints offer to `wait`."""

    def is_ready(self) -> bool: ...

    def interests(self) -> list[Interest]: ...

    def due_in(self) -> float: ...


class TcpTransport:
    """See `interface.Transport`."""

    chunk_bytes = 2 << 20

    def __init__(self, config: TransportConfig) -> None:
        descriptors.raise_limit()
        self.job = job_digest(config.job_uid)
        self._config = config
        self._endpoints: WeakSet[Endpoint] = WeakSet()

    def now(self) -> float:
        return time.monotonic()

    def memory(self, owner: str) -> Memory:
        """Ordinary memory, whoever owns it."""
        del owner
        return OrdinaryMemory()

    def listen(self, address: str) -> Listener:
        limits = self._config.limits
        # A shard is sent nothing longer than a chunk.
        longest = self.chunk_bytes if self._config.role is Role.SHARD else limits.payload_bytes
        largest = min(limits.payload_bytes, longest)
        return self._kept(SocketListener(self._config, address, largest, limits.send_queue))

    def connect(
        self, address: str, listener: Role = Role.COORDINATOR, index: int | None = None
    ) -> Channel:
        queue_length, contexts = self._config.limits.send_queue, self._client_tls
        whom = listener, index
        return self._kept(SocketChannel(self._config, address, whom, queue_length, contexts))

    @cached_property
    def _client_tls(self) -> tls.Contexts | None:
        """Of all channels: clients of a shard that is away make one every few seconds."""
        credentials = self._config.credentials
        return None if credentials is None else tls.Contexts(tls.client_context, credentials)

    def wait(self, endpoints: Sequence[Endpoint], timeout: float) -> list[Endpoint]:
        end = deadline(timeout)
        asked = [cast(_SocketEndpoint, endpoint) for endpoint in endpoints]
        while True:
            ready = [one for one, two in zip(endpoints, asked, strict=True) if two.is_ready()]
            left = remaining(end)
            if ready or left == 0.0:
                return ready
            interests = [interest for one in asked for interest in one.interests()]
            wait(interests, min([left, *(one.due_in() for one in asked)]))

    def _kept(self, made: Made) -> Made:
        """Close it with the transport."""
        self._endpoints.add(made)
        return made

    def close(self) -> None:
        for endpoint in list(self._endpoints):
            endpoint.close()


class SocketChannel:
    """See `interface.Channel`. Sends and receives on the thread that asks for it."""

    def __init__(
        self,
        config: TransportConfig,
        address: str,
        listener: tuple[Role, int | None],
        queue_length: int,
        contexts: tls.Contexts | None,
    ) -> None:
        """`listener`: role and index. `contexts`: those of all channels, where there are any.

        Raises InvalidCredentials.
        """
        self.refused: Counter[str] = Counter()
        self._config = config
        self._job = job_digest(config.job_uid)
        self._listener, self._index = listener
        place = addresses.parse(address)
        credentials = tls.credentials_at(place, config)
        if credentials is None:
            contexts = None
        elif contexts is None:
            contexts = tls.Contexts(tls.client_context, credentials)
        self._dialer = Dialer(place, contexts, self._check_listener)
        self._stream: Stream | None = None
        self._outbox = Outbox(queue_length)
        self._greeting = Outbox(1)
        """Of the present connection; it goes before everything else."""
        self._inbox = self._new_inbox()
        self._progress = (0, 0.0)
        """Bytes received on the present connection, and when it was seen that they are so many."""
        self._bell = Bell()
        self._is_closed = False
        # What is said to a coordinator is repeated, and it may be away for long.
        waits = self._listener is not Role.COORDINATOR
        self._patience = config.send_timeout.total_seconds() if waits else 0.0

    def send(
        self, header: Header, payload: Payload = b"", *, reply_into: Slice | None = None
    ) -> None:
        """The payload is sent from where it lies; a place for answers is of no use here."""
        del reply_into
        limit = self._config.limits.payload_bytes
        self._queue(*framing.message(header, payload, self._job, limit))

    def receive(self, timeout: float, destination: Destination | None = None) -> Message | None:
        """Malformed messages are counted and passed over."""
        end, refused_late = deadline(timeout), 0
        while refused_late < MOST_REFUSED:
            received = self._read(destination)
            if received is None:
                left = remaining(end)
                if left == 0.0 or self._is_woken(left):
                    return None
                continue
            message = self._accepted(*received)
            if message is not None:
                return message
            refused_late += remaining(end) == 0.0
        return None

    def wake(self) -> None:
        self._bell.ring()

    def close(self) -> None:
        self._is_closed = True
        self._dialer.close()
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._outbox.clear()
        self._bell.close()

    def is_ready(self) -> bool:
        """Whether `receive` would find something new: a message, or more of it."""
        self._pump()
        try:
            if self._stream is None or not self._inbox.has_header(self._stream):
                return False
            return not self._inbox.awaits_rest or self._stream.has_bytes()
        except ConnectionLost as error:
            self._lose(error)
            return False

    def interests(self) -> list[Interest]:
        """What to wait for before `is_ready` or `receive` can find something new."""
        if self._stream is not None:
            writing = select.POLLOUT if self._greeting or self._outbox else 0
            return [(self._stream.fileno(), select.POLLIN | writing)]
        interest = self._dialer.interest()
        return [] if interest is None else [interest]

    def due_in(self) -> float:
        """Seconds until there is something to do, whatever comes."""
        return math.inf if self._stream is not None else self._dialer.due_in()

    def _queue(self, *parts: bytes | memoryview) -> None:
        self._pump()
        end = deadline(self._patience)
        while self._outbox.is_full:
            left = remaining(end)
            if left == 0.0:
                message = "the peer's queue stays full; connect again or wait for its restart"
                raise TransportTimeout(message)
            # Answers that have come would end each wait at once.
            stream = self._stream
            room = [(stream.fileno(), select.POLLOUT)] if stream else self.interests()
            wait(room, min(left, self.due_in()))
            self._pump()
        self._outbox.add(*parts)
        self._pump()

    def _pump(self) -> None:
        """Connect and send, as far as that goes without waiting."""
        if self._is_closed:
            raise TransportClosed
        if self._stream is None:
            self._connect()
        if self._stream is None:
            return
        try:
            self._greeting.flush(self._stream)
            if not self._greeting:
                self._outbox.flush(self._stream)
        except ConnectionLost as error:
            self._lose(error)

    def _connect(self) -> None:
        self._stream = self._dialer.advance()
        if self._is_closed:
            # By another thread, which did not see what was made meanwhile.
            self.close()
            raise TransportClosed
        if self._stream is not None:
            self._inbox = self._new_inbox()
            self._greeting = Outbox(1)
            self._greeting.add(framing.greeting(self._job))
            self._begin_connection()

    def _begin_connection(self) -> None:
        """The listener knows nothing of what was said over an earlier connection."""

    def _new_inbox(self) -> Inbox:
        return Inbox(self._job, self._config.limits.payload_bytes)

    def _check_listener(self, stream: Stream) -> None:
        if not stream.is_encrypted:
            return
        found = tls.identity_of(stream, self._config)
        is_meant = self._index is None or found.group in {None, self._index}
        if tls.role_of(found) is not self._listener or not is_meant:
            number = "" if self._index is None else f"-{self._index}"
            whom = f"{self._listener.name.lower()}{number}"
            message = f"the peer's certificate is that of {found}, not of {whom}"
            raise ConnectionLost(message)

    def _lose(self, error: ConnectionLost) -> None:
        if isinstance(error, UnreadableStream):
            self.refused[error.refusal] += 1
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._outbox.drop_begun()
        self._dialer.retreat(error)

    def _read(self, destination: Destination | None) -> Received | None:
        self._pump()
        if self._stream is None:
            return None
        try:
            received = self._inbox.next(self._stream, destination or (lambda _: None))
            if received is None:
                self._require_progress()
            return received
        except ConnectionLost as error:
            self._lose(error)
            return None

    def _require_progress(self) -> None:
        """Raises ConnectionLost if the rest of a message does not come."""
        now, nbytes = time.monotonic(), self._inbox.nbytes
        if nbytes != self._progress[0] or not self._inbox.is_partial:
            self._progress = (nbytes, now)
        elif now - self._progress[1] > self._config.limits.stall.total_seconds():
            message = "half a message came, and not its rest"
            raise ConnectionLost(message)

    def _accepted(
        self, header: Header, payload: memoryview, refusal: Refusal | None
    ) -> Message | None:
        self._dialer.succeed()
        if refusal is None:
            try:
                return Message(header, self._found(header, payload))
            except MalformedMessage as error:
                refusal = error.refusal
        self.refused[refusal] += 1
        return None

    def _found(self, header: Header, payload: memoryview) -> memoryview:
        """The payload that the header speaks of. Raises MalformedMessage."""
        require_inline(header)
        return payload

    def _is_woken(self, timeout: float) -> bool:
        """Wait for news; whether it was the bell that ended the wait."""
        bell = self._bell.fileno()
        interests = [*self.interests(), (bell, select.POLLIN)]
        if bell not in wait(interests, min(timeout, self.due_in())):
            return False
        self._bell.hear()
        return True
