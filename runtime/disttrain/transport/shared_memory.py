"""Payloads as references to segments of the client; only headers and short payloads travel.

A push is read by the server where the client wrote it. A fetch is one copy by the server into the
client's segment, done before its header is sent.
"""

from collections.abc import Sequence

from disttrain.transport import codec, segments
from disttrain.transport.attachments import Attachments
from disttrain.transport.config import TransportConfig
from disttrain.transport.errors import AddressRefused, MalformedMessage, Refusal, SegmentRefused
from disttrain.transport.header import ELEMENT_BYTES, ElementType, Header, Reason, Role, Verb
from disttrain.transport.interface import (
    Buffer,
    Channel,
    Listener,
    Memory,
    Payload,
    Request,
    Slice,
)
from disttrain.transport.segments import Access, SegmentMemory
from disttrain.transport.sockets import Frame, Socket
from disttrain.transport.tcp import TcpChannel, TcpListener, TcpTransport, as_bytes, inline_payload

_LOCAL = ("ipc://", "tcp://127.0.0.1:")


class SharedMemoryChannel(TcpChannel):
    """See `interface.Channel`. Describes a segment before the first message that refers to it."""

    def __init__(self, socket: Socket, config: TransportConfig) -> None:
        super().__init__(socket, config)
        self._attached: set[tuple[int, Access]] = set()
        self._places: dict[int, Buffer] = {}

    def send(
        self, header: Header, payload: Payload = b"", *, reply_into: Slice | None = None
    ) -> None:
        """A Slice of this transport's memory is sent as a reference, everything else inline."""
        if header.verb == Verb.HELLO:
            self._attached.clear()
        if isinstance(payload, Slice) and payload.buffer.segment:
            self._send_reference(header, payload, Access.READ)
        elif reply_into is not None and reply_into.buffer.segment:
            self._places[reply_into.buffer.segment] = reply_into.buffer
            self._send_reference(header, reply_into, Access.WRITE)
        else:
            super().send(header, payload)

    def _send_reference(self, header: Header, part: Slice, access: Access) -> None:
        key = (part.buffer.segment, access)
        if key not in self._attached:
            attach = header._replace(verb=Verb.ATTACH)
            super().send(attach, segments.describe(part.buffer, access))
            self._attached.add(key)
        place = (part.buffer.segment, part.offset, part.nbytes, 0)
        self._queue([codec.encode(header, job=self._job, place=place)])

    def _payload(self, header: Header, rest: Sequence[Frame]) -> memoryview:
        if header.verb == Verb.REFUSED and header.reason == Reason.WRONG_RECEIVER:
            self._attached.clear()
        if not header.segment:
            return inline_payload(header, rest)
        buffer = self._places.get(header.segment)
        end = header.segment_offset + header.payload_bytes
        if rest or buffer is None or end > buffer.view.nbytes:
            raise MalformedMessage(
                Refusal.SEGMENT, f"answer in segment {header.segment} up to byte {end}"
            )
        return buffer.view[header.segment_offset : end].toreadonly()


class SharedMemoryListener(TcpListener):
    """See `interface.Listener`."""

    def __init__(self, socket: Socket, config: TransportConfig) -> None:
        super().__init__(socket, config)
        self._attachments = Attachments(self._job, config.limits)

    def receive(self, timeout: float) -> Request | None:
        """Segments are attached in passing; those of dead processes are dropped."""
        self._attachments.forget_dead()
        return super().receive(timeout)

    def reply(self, to: Request | bytes, header: Header, payload: Payload = b"") -> bool:
        """FETCHED is copied to the place its request gave, everything else into the message."""
        if header.verb != Verb.FETCHED or not isinstance(to, Request) or not to.header.segment:
            return super().reply(to, header, payload)
        view = as_bytes(payload)
        try:
            offset = self._copy_to_place(to, header, view)
        except SegmentRefused:
            self.refused[Refusal.SEGMENT] += 1
            return False
        place = (to.header.segment, offset, view.nbytes, 0)
        return self.socket.send(
            [to.peer, codec.encode(header, job=self._job, place=place)], copy=True
        )

    def forget(self, peer: bytes) -> None:
        """Unmaps its segments."""
        self._attachments.forget(peer)

    def close(self) -> None:
        """Closes the socket and unmaps everything."""
        super().close()
        self._attachments.close()

    def _request(self, peer: bytes, header: Header, rest: Sequence[Frame]) -> Request | None:
        try:
            if header.verb == Verb.ATTACH:
                self._attachments.attach(peer, segments.parse(inline_payload(header, rest)))
                return None
            return Request(peer, header, self._payload_of(peer, header, rest))
        except SegmentRefused as error:
            raise MalformedMessage(Refusal.SEGMENT, str(error)) from error

    def _payload_of(self, peer: bytes, header: Header, rest: Sequence[Frame]) -> memoryview:
        if not header.segment:
            return inline_payload(header, rest)
        if rest:
            raise MalformedMessage(Refusal.FRAMES, "a payload beside a reference")
        access = Access.WRITE if header.verb == Verb.FETCH else Access.READ
        key = (header.segment, access)
        part = self._attachments.part(peer, key, header.segment_offset, header.payload_bytes)
        return part if access is Access.READ else part[:0]

    def _copy_to_place(self, request: Request, header: Header, view: memoryview) -> int:
        """Offset in the segment at which the payload now lies."""
        asked = request.header
        distance = (header.first - asked.first) * ELEMENT_BYTES[ElementType(header.element_type)]
        if distance < 0 or distance + view.nbytes > asked.payload_bytes:
            message = f"{view.nbytes} bytes at {distance} of a place of {asked.payload_bytes}"
            raise SegmentRefused(message)
        offset = asked.segment_offset + distance
        key = (asked.segment, Access.WRITE)
        self._attachments.part(request.peer, key, offset, view.nbytes)[:] = view
        return offset


class SharedMemoryTransport(TcpTransport):
    """See `interface.Transport`; only between processes of one machine and one user."""

    chunk_bytes = 4 << 20

    def memory(self, owner: str) -> Memory:
        """Segments."""
        return SegmentMemory(self.job, owner)

    def listen(self, address: str) -> Listener:
        """On a Unix socket or the loopback."""
        _check_local(address)
        return SharedMemoryListener(self._sockets.listen(address), self._config)

    def connect(self, address: str, listener: Role = Role.COORDINATOR) -> Channel:
        """To a Unix socket or the loopback."""
        _check_local(address)
        return SharedMemoryChannel(self._sockets.connect(address, listener), self._config)


def _check_local(address: str) -> None:
    if not address.startswith(_LOCAL):
        message = f"shared memory is for one machine: {address!r} must start with one of {_LOCAL}"
        raise AddressRefused(message)
