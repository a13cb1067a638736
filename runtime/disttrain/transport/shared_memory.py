"""Payloads as references to segments of the client; only headers and short payloads travel.

A push is read by the server where the client wrote it. A fetch is one copy by the server into the
client's segment, done before its header is sent.
"""

import os
import select
import time
from dataclasses import dataclass, field

from disttrain.transport import framing, segments, tls
from disttrain.transport.config import Limits, TransportConfig
from disttrain.transport.errors import AddressRefused, MalformedMessage, Refusal, SegmentRefused
from disttrain.transport.framing import require_inline
from disttrain.transport.header import ELEMENT_BYTES, ElementType, Header, Reason, Role, Verb
from disttrain.transport.interface import (
    Buffer,
    Channel,
    Listener,
    Memory,
    Payload,
    Request,
    Slice,
    as_bytes,
)
from disttrain.transport.listener import SocketListener
from disttrain.transport.segments import Access, Description, SegmentMemory
from disttrain.transport.tcp import SocketChannel, TcpTransport

_SWEEP_SECONDS = 0.5
"""How long the memory of a dead process may stay mapped."""

_LOCAL = ("ipc://", "tcp://127.0.0.1:")


class SharedMemoryChannel(SocketChannel):
    """See `interface.Channel`. Describes a segment before the first message that refers to it."""

    def __init__(
        self,
        config: TransportConfig,
        address: str,
        listener: tuple[Role, int | None],
        contexts: tls.Contexts | None,
    ) -> None:
        super().__init__(config, address, listener, config.limits.header_queue, contexts)
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
        place = (part.buffer.segment, part.offset, part.nbytes)
        self._queue(framing.encode(header, job=self._job, place=place))

    def _begin_connection(self) -> None:
        self._attached.clear()

    def _found(self, header: Header, payload: memoryview) -> memoryview:
        if header.verb == Verb.REFUSED and header.reason == Reason.WRONG_RECEIVER:
            self._attached.clear()
        if not header.segment:
            return payload
        buffer = self._places.get(header.segment)
        end = header.segment_offset + header.payload_bytes
        if buffer is None or end > buffer.view.nbytes:
            raise MalformedMessage(
                Refusal.SEGMENT, f"answer in segment {header.segment} up to byte {end}"
            )
        return buffer.view[header.segment_offset : end].toreadonly()


@dataclass(slots=True)
class _Peer:
    """What one peer has attached."""

    mapped: dict[tuple[int, Access], tuple[str, memoryview]] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)
    """Process number -> descriptor that becomes readable when it has ended."""

    @property
    def nbytes(self) -> int:
        return sum(view.nbytes for _, view in self.mapped.values())


class Attachments:
    """The segments of its peers that a listener has mapped, until the peer is forgotten or dies.

    Belongs to the listener's thread.
    """

    def __init__(self, job: int, limits: Limits) -> None:
        self._job = job
        self._limits = limits
        self._peers: dict[bytes, _Peer] = {}
        self._ended = select.poll()
        self._peer_of: dict[int, bytes] = {}
        self._next_sweep = 0.0

    def attach(self, name: bytes, description: Description) -> None:
        """Maps a segment; the same one again changes nothing. Raises SegmentRefused."""
        peer = self._peers.get(name, _Peer())
        key = (description.segment, description.access)
        if key in peer.mapped and peer.mapped[key][0] == description.name:
            return
        self._check_limits(peer, description)
        view = segments.open_segment(description, self._job)
        self._watch(name, peer, description.process)
        peer.mapped[key] = (description.name, view)
        self._peers[name] = peer

    def part(self, name: bytes, key: tuple[int, Access], offset: int, nbytes: int) -> memoryview:
        """Bytes of a mapped segment. Raises SegmentRefused if it is not mapped, or shorter."""
        peer = self._peers.get(name)
        if peer is None or key not in peer.mapped:
            message = f"segment {key[0]} is not attached for {key[1]}: say HELLO and send again"
            raise SegmentRefused(message)
        view = peer.mapped[key][1]
        if offset + nbytes > view.nbytes:
            message = (
                f"bytes {offset} to {offset + nbytes} of segment {key[0]}, which has {view.nbytes}"
            )
            raise SegmentRefused(message)
        return view[offset : offset + nbytes]

    def forget(self, name: bytes) -> None:
        """Drops the mappings of a peer; pages go when the last view of them does."""
        peer = self._peers.pop(name, None)
        if peer is None:
            return
        for descriptor in peer.processes.values():
            self._ended.unregister(descriptor)
            del self._peer_of[descriptor]
            os.close(descriptor)

    def forget_dead(self) -> None:
        """Drops the mappings of peers whose process has ended; looks at most twice a second."""
        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        for descriptor, _ in self._ended.poll(0):
            if descriptor in self._peer_of:
                self.forget(self._peer_of[descriptor])

    def close(self) -> None:
        for name in list(self._peers):
            self.forget(name)

    def _check_limits(self, peer: _Peer, description: Description) -> None:
        limits = self._limits
        checks = (
            ("segments of this peer", len(peer.mapped) + 1, limits.segments_per_peer),
            ("bytes of this peer", peer.nbytes + description.nbytes, limits.segment_bytes_per_peer),
            ("segments of all peers", self._segments() + 1, limits.segments),
        )
        for what, wanted, allowed in checks:
            if wanted > allowed:
                message = f"{wanted} {what}; at most {allowed}"
                raise SegmentRefused(message)

    def _segments(self) -> int:
        return sum(len(peer.mapped) for peer in self._peers.values())

    def _watch(self, name: bytes, peer: _Peer, process: int) -> None:
        if process in peer.processes:
            return
        try:
            descriptor = os.pidfd_open(process)
        except OSError as error:
            message = f"process {process} is gone: {error}"
            raise SegmentRefused(message) from error
        peer.processes[process] = descriptor
        self._peer_of[descriptor] = name
        self._ended.register(descriptor, select.POLLIN)


class SharedMemoryListener(SocketListener):
    """See `interface.Listener`."""

    def __init__(self, config: TransportConfig, address: str) -> None:
        limits = config.limits
        super().__init__(config, address, limits.payload_bytes, limits.header_queue)
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
        place = (to.header.segment, offset, view.nbytes)
        return self._send_to(to.peer, framing.encode(header, job=self._job, place=place))

    def forget(self, peer: bytes) -> None:
        """Unmaps its segments."""
        self._attachments.forget(peer)

    def close(self) -> None:
        """Closes the socket and unmaps everything."""
        super().close()
        self._attachments.close()

    def _request(self, peer: bytes, header: Header, payload: memoryview) -> Request | None:
        try:
            if header.verb == Verb.ATTACH:
                require_inline(header)
                self._attachments.attach(peer, segments.parse(payload))
                return None
            return Request(peer, header, self._payload_of(peer, header, payload))
        except SegmentRefused as error:
            raise MalformedMessage(Refusal.SEGMENT, str(error)) from error

    def _payload_of(self, peer: bytes, header: Header, payload: memoryview) -> memoryview:
        if not header.segment:
            return payload
        access = Access.WRITE if header.verb == Verb.FETCH else Access.READ
        key = (header.segment, access)
        return self._attachments.part(peer, key, header.segment_offset, header.payload_bytes)

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
        return SegmentMemory(self.job, owner)

    def listen(self, address: str) -> Listener:
        """On a Unix socket or the loopback."""
        _check_local(address)
        return self._kept(SharedMemoryListener(self._config, address))

    def connect(
        self, address: str, listener: Role = Role.COORDINATOR, index: int | None = None
    ) -> Channel:
        """To a Unix socket or the loopback."""
        _check_local(address)
        channel = SharedMemoryChannel(self._config, address, (listener, index), self._client_tls)
        return self._kept(channel)


def _check_local(address: str) -> None:
    if not address.startswith(_LOCAL):
        message = f"shared memory is for one machine: {address!r} must start with one of {_LOCAL}"
        raise AddressRefused(message)
