"""What every transport offers. Nothing here knows a socket."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from disttrain.job.identity import Identity
from disttrain.transport.errors import MessageTooLarge
from disttrain.transport.header import Header, Role


class Buffer:
    """Memory that can be sent by reference, 64-byte aligned, zero at first; see `Memory`.

    The memory lives as long as something refers to it (`view`, an array, a message on its way).
    `close` only says that nothing new may.
    """

    def __init__(
        self, *, name: str, view: memoryview, segment: int = 0, descriptor: int = -1
    ) -> None:
        self.name = name
        self.view = view
        self.nbytes = view.nbytes
        self.segment = segment
        """Number that stands in headers; 0 for ordinary memory."""
        self.descriptor = descriptor

    def close(self) -> None:
        """Gives up the descriptor and the reference to the memory. May be called again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1
        self.view = memoryview(b"")


class Slice(NamedTuple):
    """A part of a `Buffer`, in bytes. Must not change from the send until the peer has answered."""

    buffer: Buffer
    offset: int
    nbytes: int

    @property
    def view(self) -> memoryview:
        """The bytes, writable."""
        return self.buffer.view[self.offset : self.offset + self.nbytes]


Payload = bytes | memoryview | Slice
NO_BYTES = memoryview(b"")


def as_bytes(payload: Payload, limit: int | None = None) -> memoryview:
    """The payload without its shape and element type. Raises MessageTooLarge above the limit."""
    view = payload.view if isinstance(payload, Slice) else memoryview(payload)
    if limit is not None and view.nbytes > limit:
        message = f"payload of {view.nbytes} bytes; at most {limit}: send it in chunks"
        raise MessageTooLarge(message)
    # A memoryview without elements cannot be cast.
    return view.cast("B") if view.nbytes else NO_BYTES


Destination = Callable[[Header], memoryview | None]
"""Where the payload of a received message is to be placed; None: in fresh memory.

A place is writable and exactly `payload_bytes` long."""


class Message(NamedTuple):
    """A received message; the payload is read-only and empty if there is none."""

    header: Header
    payload: memoryview


class Request(NamedTuple):
    """A message received by a listener.

    `payload` is read-only, and may be the peer's own memory: finish with it before answering. It is
    overwritten by what the listener receives next. Of a FETCH it is the place that the request
    gave, which may be written to; empty where the peer's memory is not shared.
    """

    peer: bytes
    header: Header
    payload: memoryview
    identity: Identity | None = None
    """Who the sender is by its certificate; None where nothing is encrypted."""

    @property
    def role(self) -> Role:
        """Role of the sender; under TLS the one of its certificate, otherwise what it says."""
        return Role(self.header.role)


class Memory(Protocol):
    """Makes the buffers of one process; any thread."""

    def allocate(self, name: str, nbytes: int) -> Buffer:
        """A fresh buffer. The name serves people who look at the process; it need not be unique."""
        ...

    def close(self) -> None:
        """Closes every buffer made here."""
        ...


class Endpoint(Protocol):
    """What `Transport.wait` can wait for."""

    refused: Counter[str]
    """Received messages that were dropped, by `errors.Refusal`."""

    def close(self) -> None:
        """Drops what was not sent, and returns at once. May be called again."""
        ...


class Channel(Endpoint, Protocol):
    """The client's side of one connection; belongs to one thread. Connects again by itself.

    After the peer restarted, requests on their way are lost: ask again. Of a header the fields
    `job`, `segment`, `segment_offset` and `payload_bytes` are filled in here.
    """

    def send(
        self, header: Header, payload: Payload = b"", *, reply_into: Slice | None = None
    ) -> None:
        """Queues a request. Raises TransportTimeout when the queue stays full, and MessageTooLarge.

        What cannot be sent now is sent while this thread calls `send`, `receive` or `wait`.

        To a coordinator it never waits: a full queue raises at once.

        A Slice or memoryview is not copied: leave it as it is until the peer has answered.
        `reply_into` (FETCH) is the place for the payloads of the answers: element `header.first`
        lies at its start. A peer may write there until it has answered or this process has ended,
        even after `close`: after a lost connection give it another buffer.
        """
        ...

    def receive(self, timeout: float, destination: Destination | None = None) -> Message | None:
        """The next message, in the order sent; None after `timeout` seconds.

        Where the peer has already put the payload into `reply_into`, `destination` is not asked.
        """
        ...

    def wake(self) -> None:
        """End a `receive` that waits, or the next one that would, with None. Any thread."""
        ...


class Listener(Endpoint, Protocol):
    """The server's side of many connections, for one thread. Never raises for what a peer does."""

    address: str
    """The real address, with the port filled in."""

    def receive(self, timeout: float) -> Request | None:
        """The next well-formed request of this job; None after `timeout` seconds."""
        ...

    def reply(self, to: Request | bytes, header: Header, payload: Payload = b"") -> bool:
        """Answers a request, or sends to a peer unasked; the payload is copied and may change.

        FETCHED goes to the place that its request gave, if it does not lie there already. False,
        and nothing was sent: the peer is gone, its queue is full, or its place is gone or too
        small.
        """
        ...

    def forget(self, peer: bytes) -> None:
        """Drops everything held for a peer, e.g. when it is fenced. It has to say HELLO again."""
        ...


class Transport(Protocol):
    """Makes channels, listeners and memory of one kind. One per process, made after a fork."""

    chunk_bytes: int
    """Payload size with the best rate."""
    job: int
    """Digest of the job's uid."""

    def now(self) -> float:
        """The time by which `wait` and `receive` wait, in seconds; it never goes back."""
        ...

    def memory(self, owner: str) -> Memory:
        """Memory of one incarnation of a process, e.g. "replica-0-i3"; the name shows in /proc."""
        ...

    def listen(self, address: str) -> Listener:
        """Binds to e.g. "tcp://127.0.0.1:0" (any port) or "ipc:///path". Raises AddressRefused."""
        ...

    def connect(
        self, address: str, listener: Role = Role.COORDINATOR, index: int | None = None
    ) -> Channel:
        """Connects in the background, also to a listener to come. Raises AddressRefused.

        Under TLS the peer must have a certificate of the role `listener`, and of this index if the
        certificate names one.
        """
        ...

    def wait(self, endpoints: Sequence[Endpoint], timeout: float) -> list[Endpoint]:
        """Those with something to receive, once there is one; empty after `timeout` seconds.

        Threads may wait at once, each for its own endpoints.
        """
        ...

    def close(self) -> None:
        """Closes every endpoint made here; waits for nothing."""
        ...
