"""Messages over a stream: a greeting once, then headers, each followed by its payload.

Nothing is allocated from what a header says before it is found consistent and short enough.

A greeting is magic, protocol version and the job's digest, so that a stranger is known by its first
bytes. The payload of a header that refers to shared memory does not travel.
"""

import math
import mmap
import struct
from collections import deque
from collections.abc import Callable

from disttrain.transport import memory
from disttrain.transport.errors import (
    ConnectionLost,
    MalformedMessage,
    Refusal,
    UnreadableStream,
)
from disttrain.transport.header import (
    ELEMENT_BYTES,
    MAGIC,
    PROTOCOL_VERSION,
    SCALE_BYTES,
    ElementType,
    Header,
    Reason,
    Role,
    Verb,
    blocks_around,
)
from disttrain.transport.interface import NO_BYTES, Payload, as_bytes
from disttrain.transport.stream import Stream

_PREFIX = MAGIC + struct.pack("<H", PROTOCOL_VERSION)
_STRUCT = struct.Struct("<6s BQB III QIQ BBB II QQ QQQ d q BIQ IQQ")
HEADER_BYTES = _STRUCT.size

_LARGEST = (1 << 63) - 1
_MOST_SAMPLES = 1 << 40
"""Behind one push. Shards add them up in 64 bits."""
_VERBS = frozenset(map(int, Verb))
_ROLES = frozenset(map(int, Role))
_REASONS = frozenset(map(int, Reason))
_ALIGNMENT = {int(element_type): size for element_type, size in ELEMENT_BYTES.items()}
_ALIGNMENT[ElementType.INT8] = SCALE_BYTES
_CHUNK_VERBS = frozenset(map(int, (Verb.UPLOAD, Verb.PUSH, Verb.FETCHED, Verb.STAGE)))
_SEGMENT_VERBS = _CHUNK_VERBS | {int(Verb.FETCH)}
_WITHOUT_PAYLOAD = frozenset(map(int, (Verb.UPLOADED, Verb.PUSHED, Verb.STAGED)))

_GREETING = struct.Struct("<4sHQ")
_TLS = (b"\x15\x03", b"\x16\x03")
"""What an alert and a handshake of TLS begin with."""
_BLOCK_BYTES = 256 << 10
"""Received at once; a longer payload of no known place gets pages of its own."""
_PLACE_BYTES = 2 << 20
"""A chunk over TCP."""
_MOST_SPARE = 4

MOST_REFUSED = 64
"""Messages that one call looks at after its timeout, if all of them are refused."""


def greeting(job: int) -> bytes:
    return _GREETING.pack(MAGIC, PROTOCOL_VERSION, job)


class Outbox:
    """What waits to be sent to one peer: a bounded number of messages, sent from where they lie."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[list[memoryview]] = deque()
        self._has_begun = False
        """The first of them is partly sent."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._limit

    def add(self, *parts: bytes | memoryview) -> None:
        self._waiting.append([memoryview(part) for part in parts if len(part)])

    def flush(self, stream: Stream) -> None:
        """Send what the stream takes now. Raises ConnectionLost."""
        while self._waiting:
            parts = self._waiting[0]
            sent = stream.write(parts)
            if not sent:
                return
            self._has_begun = True
            _drop(parts, sent)
            if not parts:
                self._waiting.popleft()
                self._has_begun = False

    def copy_last(self) -> None:
        """Let what lies where the last message is sent from change."""
        if self._waiting:
            self._waiting[-1] = [memoryview(bytes(part)) for part in self._waiting[-1]]

    def drop_begun(self) -> None:
        """After a lost connection: half a message is of no use to the next one."""
        if self._has_begun:
            self._waiting.popleft()
        self._has_begun = False

    def clear(self) -> None:
        self._waiting.clear()
        self._has_begun = False


def _drop(parts: list[memoryview], nbytes: int) -> None:
    """Take so many bytes off the beginning."""
    while nbytes:
        if nbytes < parts[0].nbytes:
            parts[0] = parts[0][nbytes:]
            return
        nbytes -= parts.pop(0).nbytes


Received = tuple[Header, memoryview, Refusal | None]
"""A whole message: its header, its payload (read-only), and why it is to be dropped, if it is."""


class Inbox:
    """Puts together the messages of one connection, each payload in its place."""

    def __init__(self, job: int, largest_bytes: int) -> None:
        self._job = job
        self._largest_bytes = largest_bytes
        self._greeting = memoryview(bytearray(_GREETING.size))
        self._head = memoryview(bytearray(HEADER_BYTES))
        self._filled = 0
        """Bytes of what is being received: greeting, header or payload."""
        self._header: Header | None = None
        self._place: memoryview | None = None
        self._refusal: Refusal | None = None
        self.nbytes = 0
        """Received so far."""

    @property
    def awaits_rest(self) -> bool:
        """Whether all that has come of a payload is in its place already."""
        return self._place is not None

    @property
    def is_partial(self) -> bool:
        """Whether a part of a message has come."""
        return self._filled > 0 or self._header is not None

    def is_greeted(self, stream: Stream) -> bool:
        """Whether the whole greeting has come. Raises ConnectionLost, UnreadableStream."""
        if not self._fill_plain(stream, self._greeting):
            return False
        magic, version, job = _GREETING.unpack(self._greeting)
        if (magic, version) != (MAGIC, PROTOCOL_VERSION):
            detail = f"greets with {magic!r}, version {version} instead of {PROTOCOL_VERSION}"
            raise UnreadableStream(Refusal.MAGIC, detail)
        if job != self._job:
            detail = f"digest {job:016x} instead of {self._job:016x}"
            raise UnreadableStream(Refusal.WRONG_JOB, detail)
        return True

    def has_header(self, stream: Stream) -> bool:
        """Whether a header has come, if need be now. Raises ConnectionLost, UnreadableStream."""
        if self._header is None and self._fill_plain(stream, self._head):
            self._header = self._decoded()
        return self._header is not None

    def next(
        self, stream: Stream, place_of: Callable[[Header], memoryview | None]
    ) -> Received | None:
        """The next message once it is whole. Raises ConnectionLost, UnreadableStream.

        `place_of` is asked once for each payload: None is fresh memory, and a message whose payload
        is not as long as its place is refused.
        """
        if not self.has_header(stream) or (header := self._header) is None:
            return None
        if self._place is None:
            self._place = self._placed(header, place_of)
        if self._place.nbytes and not self._fill(stream, self._place):
            return None
        payload, refusal = self._place.toreadonly(), self._refusal
        self._header = self._place = self._refusal = None
        return header, payload, refusal

    def take_place(self) -> memoryview:
        """Where half a message lies that nobody will receive any more."""
        place, self._place = self._place or NO_BYTES, None
        return place

    def _decoded(self) -> Header:
        try:
            header = decode(self._head, job=self._job)
        except MalformedMessage as error:
            if error.refusal is not Refusal.FIELDS:
                raise UnreadableStream(error.refusal, str(error)) from error
            # Its payload is read away, and the next header is where it should be.
            self._refusal, header = Refusal.FIELDS, Header._make(_STRUCT.unpack(self._head)[1:])
        if inline_bytes(header) > self._largest_bytes:
            detail = f"{header.payload_bytes} bytes; at most {self._largest_bytes}"
            raise UnreadableStream(Refusal.PAYLOAD, detail)
        return header

    def _placed(
        self, header: Header, place_of: Callable[[Header], memoryview | None]
    ) -> memoryview:
        nbytes = inline_bytes(header)
        if not nbytes:
            return NO_BYTES
        place = None if self._refusal else place_of(header)
        if place is not None and place.nbytes == nbytes:
            return as_bytes(place)
        if place is not None:
            self._refusal = Refusal.PAYLOAD
        # Pages are taken from the system as bytes come, not as they are announced.
        return (
            memory.pages(nbytes)[:nbytes]
            if nbytes > _BLOCK_BYTES
            else memoryview(bytearray(nbytes))
        )

    def _fill_plain(self, stream: Stream, place: memoryview) -> bool:
        """`_fill` of what a peer begins otherwise that encrypts where this process does not."""
        try:
            is_full = self._fill(stream, place)
        except ConnectionLost:
            _require_no_tls(place)
            raise
        _require_no_tls(place)
        return is_full

    def _fill(self, stream: Stream, place: memoryview) -> bool:
        """Whether the place is full now; then the next one is filled from its beginning."""
        while self._filled < place.nbytes:
            block = place[self._filled : self._filled + _BLOCK_BYTES]
            count = stream.read_into(block)
            if not count:
                return False
            self._filled += count
            self.nbytes += count
        self._filled = 0
        return True


class Pages:
    """Where a listener puts the payloads that it receives; places are used again.

    Belongs to one thread.
    """

    def __init__(self) -> None:
        self._spare: list[memoryview] = []

    def place(self, header: Header) -> memoryview | None:
        """Exactly as long as the payload; None, fresh memory, for those that are no whole chunk."""
        nbytes = header.payload_bytes
        if not _PLACE_BYTES // 2 < nbytes <= _PLACE_BYTES:
            return None
        return (self._spare.pop() if self._spare else memory.pages(_PLACE_BYTES))[:nbytes]

    def take_back(self, place: memoryview) -> None:
        """Nobody reads there any more; memory of others is left alone."""
        pages = place.obj
        if not isinstance(pages, mmap.mmap) or len(pages) != _PLACE_BYTES:
            return
        if len(self._spare) < _MOST_SPARE:
            self._spare.append(memoryview(pages))


def _require_no_tls(beginning: memoryview) -> None:
    if beginning[:2] in _TLS:
        detail = "the peer speaks TLS, and this process runs with spec.transport.encryption none"
        raise UnreadableStream(Refusal.ENCRYPTION, detail)


def require_inline(header: Header) -> None:
    """Raises MalformedMessage for a payload that is referred to."""
    if header.segment:
        detail = f"segment {header.segment}, and nobody here shares memory"
        raise MalformedMessage(Refusal.PAYLOAD, detail)


def inline_bytes(header: Header) -> int:
    """How long the payload is that follows the header."""
    return 0 if header.segment else header.payload_bytes


def message(header: Header, payload: Payload, job: int, limit: int) -> tuple[bytes, memoryview]:
    """Header and payload as they travel. Raises MessageTooLarge."""
    view = as_bytes(payload, limit)
    return encode(header, job=job, place=(0, 0, view.nbytes)), view


def encode(header: Header, *, job: int, place: tuple[int, int, int] = (0, 0, 0)) -> bytes:
    """HEADER_BYTES; ValueError if a field does not fit.

    `place` is (segment, segment_offset, payload_bytes).
    """
    try:
        return _STRUCT.pack(_PREFIX, header[0], job, *header[2:-3], *place)
    except struct.error as error:
        message = f"{header} does not fit into its bytes: {error}"
        raise ValueError(message) from error


def decode(encoded: bytes | memoryview, *, job: int) -> Header:
    """The header in so many bytes, consistent in itself. Raises only MalformedMessage."""
    prefix, *values = _STRUCT.unpack(encoded)
    if prefix != _PREFIX:
        raise MalformedMessage(Refusal.MAGIC, f"starts with {prefix!r} instead of {_PREFIX!r}")
    header = Header._make(values)
    if header.job != job:
        raise MalformedMessage(Refusal.WRONG_JOB, f"digest {header.job:016x} instead of {job:016x}")
    problem = _unknown_value(header) or _out_of_range(header) or _inconsistent(header)
    if problem:
        raise MalformedMessage(Refusal.FIELDS, problem)
    return header


def _unknown_value(header: Header) -> str:
    """The first enumerated field with a value that has no meaning."""
    if header.verb not in _VERBS:
        return f"verb {header.verb}"
    if header.role not in _ROLES:
        return f"role {header.role}"
    if header.element_type not in _ALIGNMENT:
        return f"element type {header.element_type}"
    if header.reason not in _REASONS:
        return f"reason {header.reason}"
    return ""


def _out_of_range(header: Header) -> str:
    """The first number that could overflow later, or is none."""
    if not math.isfinite(header.scale):
        return f"scale {header.scale}"
    if header.verb == Verb.PUSH and header.samples >= _MOST_SAMPLES:
        return f"{header.samples} samples"
    if header.local_samples >= _MOST_SAMPLES:
        return f"{header.local_samples} samples of local steps"
    largest = max(
        header.first,
        header.count,
        header.segment_offset,
        header.payload_bytes,
        header.sequence,
        header.version,
        header.samples,
        header.lease,
        header.lease_offset,
    )
    if largest > _LARGEST // 16:
        return f"number {largest}"
    return ""


def _inconsistent(header: Header) -> str:
    """The first contradiction between fields."""
    if header.verb in _CHUNK_VERBS:
        return _inconsistent_chunk(header)
    if header.verb in _WITHOUT_PAYLOAD and header.payload_bytes:
        return f"payload of {header.payload_bytes} bytes with verb {header.verb}"
    if header.segment and header.verb not in _SEGMENT_VERBS:
        return f"segment {header.segment} with verb {header.verb}"
    return ""


def _inconsistent_chunk(header: Header) -> str:
    nbytes = header.count * _ALIGNMENT[header.element_type]
    if header.element_type == ElementType.INT8:
        _, nbytes = blocks_around(header.first, header.count)
    if nbytes != header.payload_bytes:
        return (
            f"{header.count} elements of type {header.element_type} in {header.payload_bytes} bytes"
        )
    if header.segment_offset % _ALIGNMENT[header.element_type]:
        return f"offset {header.segment_offset} for elements of type {header.element_type}"
    if header.chunk >= header.chunks:
        return f"chunk {header.chunk} of {header.chunks}"
    return ""
