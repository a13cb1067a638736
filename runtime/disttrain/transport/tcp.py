"""Payloads inside the messages: between machines, and for short payloads everywhere."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import cast

import xxhash

from disttrain.transport import authentication, codec
from disttrain.transport.config import TransportConfig
from disttrain.transport.digest import job_digest
from disttrain.transport.errors import MalformedMessage, Refusal, TransportTimeout
from disttrain.transport.header import Header, Reason, Role, Verb
from disttrain.transport.interface import (
    NO_BYTES,
    Channel,
    Destination,
    Endpoint,
    Listener,
    Memory,
    Message,
    Payload,
    Request,
    Slice,
    as_bytes,
)
from disttrain.transport.memory import OrdinaryMemory
from disttrain.transport.sockets import Frame, Socket, Sockets

_BLOCK_BYTES = 256 << 10
"""Copied, then summed up while the cache still holds it."""


class _TcpEndpoint:
    def __init__(self, socket: Socket, config: TransportConfig) -> None:
        self.refused: Counter[str] = Counter()
        self.socket = socket
        self._config = config
        self._job = job_digest(config.job_uid)

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()


class TcpChannel(_TcpEndpoint):
    """See `interface.Channel`."""

    def send(
        self, header: Header, payload: Payload = b"", *, reply_into: Slice | None = None
    ) -> None:
        """The payload is sent from where it lies; a place for answers is of no use here."""
        del reply_into
        frames = inline_frames(header, payload, self._job, self._config.limits.payload_bytes)
        self._queue(frames)

    def receive(self, timeout: float, destination: Destination | None = None) -> Message | None:
        """Malformed messages are counted and passed over."""
        for frames in self.socket.messages(timeout):
            try:
                return self._message(frames, destination)
            except MalformedMessage as error:
                self.refused[error.refusal] += 1
        return None

    def wake(self) -> None:
        """Rings the socket's bell."""
        self.socket.bell.ring()

    def _queue(self, frames: Sequence[bytes | memoryview]) -> None:
        if not self.socket.send(frames, copy=False):
            message = "the peer's queue stays full; connect again or wait for its restart"
            raise TransportTimeout(message)

    def _message(self, frames: Sequence[Frame], destination: Destination | None) -> Message:
        header, rest = codec.decode(frames[0].bytes, job=self._job), frames[1:]
        place = destination(header) if destination and rest and header.payload_bytes else None
        if place is None:
            return Message(header, self._payload(header, rest))
        return Message(header, _placed(header, rest, as_bytes(place)))

    def _payload(self, header: Header, rest: Sequence[Frame]) -> memoryview:
        return inline_payload(header, rest)


class TcpListener(_TcpEndpoint):
    """See `interface.Listener`."""

    def __init__(self, socket: Socket, config: TransportConfig) -> None:
        super().__init__(socket, config)
        self.address = socket.address

    def receive(self, timeout: float) -> Request | None:
        """Malformed messages are counted, answered if they can be, and passed over."""
        for frames in self.socket.messages(timeout):
            request = self._request_or_refusal(frames)
            if request is not None:
                return request
        return None

    def reply(self, to: Request | bytes, header: Header, payload: Payload = b"") -> bool:
        """The payload is copied into the message."""
        peer = to if isinstance(to, bytes) else to.peer
        frames = inline_frames(header, payload, self._job, self._config.limits.payload_bytes)
        return self.socket.send([peer, *frames], copy=True)

    def forget(self, peer: bytes) -> None:
        """Nothing is held for a peer."""

    def _request_or_refusal(self, frames: Sequence[Frame]) -> Request | None:
        peer = frames[0].bytes
        header = None
        try:
            if not 2 <= len(frames) <= 3:
                raise MalformedMessage(Refusal.FRAMES, f"{len(frames)} frames")
            header = codec.decode(frames[1].bytes, job=self._job)
            self._check_role(header, frames[1])
            return self._request(peer, header, frames[2:])
        except MalformedMessage as error:
            self.refused[error.refusal] += 1
            if header is not None:
                self._refuse(peer, header, error)
            return None

    def _request(self, peer: bytes, header: Header, rest: Sequence[Frame]) -> Request | None:
        if header.verb == Verb.ATTACH:
            raise MalformedMessage(Refusal.SEGMENT, "memory cannot be shared over TCP")
        return Request(peer, header, inline_payload(header, rest))

    def _check_role(self, header: Header, frame: Frame) -> None:
        """With CURVE, the key that the connection was made with says the role."""
        if self._config.curve is None:
            return
        role = authentication.role_of(frame)
        if role != header.role:
            detail = f"the key of {Role(role).name} speaks as {Role(header.role).name}"
            raise MalformedMessage(Refusal.ROLE, detail)

    def _refuse(self, peer: bytes, header: Header, error: MalformedMessage) -> None:
        reason = _REASONS.get(error.refusal, Reason.MALFORMED)
        answer = header._replace(verb=Verb.REFUSED, role=self._config.role, sender=0, reason=reason)
        self.reply(peer, answer, str(error).encode())


_REASONS = {
    Refusal.CHECKSUM: Reason.CORRUPT,
    Refusal.ROLE: Reason.NOT_ALLOWED,
    Refusal.SEGMENT: Reason.WRONG_RECEIVER,
}


class TcpTransport:
    """See `interface.Transport`."""

    chunk_bytes = 2 << 20

    def __init__(self, config: TransportConfig) -> None:
        self.job = job_digest(config.job_uid)
        self._config = config
        self._sockets = Sockets(config)

    def now(self) -> float:
        return time.monotonic()

    def memory(self, owner: str) -> Memory:
        """Ordinary memory, whoever owns it."""
        del owner
        return OrdinaryMemory()

    def listen(self, address: str) -> Listener:
        socket = self._sockets.listen(address, self._largest_bytes)
        return TcpListener(socket, self._config)

    @property
    def _largest_bytes(self) -> int:
        """Of a frame: a shard is sent nothing longer than a chunk."""
        limit = self._config.limits.payload_bytes
        return min(limit, self.chunk_bytes) if self._config.role is Role.SHARD else limit

    def connect(self, address: str, listener: Role = Role.COORDINATOR) -> Channel:
        return TcpChannel(self._sockets.connect(address, listener), self._config)

    def wait(self, endpoints: Sequence[Endpoint], timeout: float) -> list[Endpoint]:
        by_socket = {cast(_TcpEndpoint, endpoint).socket: endpoint for endpoint in endpoints}
        return [by_socket[socket] for socket in self._sockets.wait(list(by_socket), timeout)]

    def close(self) -> None:
        """Closes the sockets and their context."""
        self._sockets.close()


def inline_frames(
    header: Header, payload: Payload, job: int, limit: int
) -> list[bytes | memoryview]:
    """Header and payload as they travel, with length and checksum filled in."""
    view = as_bytes(payload, limit)
    nbytes = view.nbytes
    if not nbytes:
        return [codec.encode(header, job=job)]
    checksum = xxhash.xxh3_64_intdigest(view)
    return [codec.encode(header, job=job, place=(0, 0, nbytes, checksum)), view]


def inline_payload(header: Header, rest: Sequence[Frame]) -> memoryview:
    """The payload frame, if it is what the header says."""
    payload = _payload_frame(header, rest)
    _check_sum(header, xxhash.xxh3_64_intdigest(payload) if payload.nbytes else 0)
    return payload


def _placed(header: Header, rest: Sequence[Frame], place: memoryview) -> memoryview:
    """The payload frame, copied to its place."""
    payload = _payload_frame(header, rest)
    if place.nbytes != payload.nbytes:
        detail = f"{payload.nbytes} bytes for a place of {place.nbytes}"
        raise MalformedMessage(Refusal.PAYLOAD, detail)
    found = xxhash.xxh3_64()
    for first in range(0, payload.nbytes, _BLOCK_BYTES):
        block = place[first : first + _BLOCK_BYTES]
        block[:] = payload[first : first + _BLOCK_BYTES]
        found.update(block)
    _check_sum(header, found.intdigest())
    return place.toreadonly()


def _payload_frame(header: Header, rest: Sequence[Frame]) -> memoryview:
    if len(rest) > 1:
        raise MalformedMessage(Refusal.FRAMES, f"{len(rest)} payloads")
    payload = rest[0].buffer if rest else NO_BYTES
    if header.segment or payload.nbytes != header.payload_bytes:
        detail = f"{payload.nbytes} bytes in the message, {header.payload_bytes} in its header"
        raise MalformedMessage(Refusal.PAYLOAD, detail)
    return payload


def _check_sum(header: Header, found: int) -> None:
    """MalformedMessage if the payload is not the one that was sent."""
    if found != header.checksum:
        detail = f"{found:016x} instead of {header.checksum:016x}"
        raise MalformedMessage(Refusal.CHECKSUM, detail)
