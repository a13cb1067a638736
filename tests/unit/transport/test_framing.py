"""The wire decoder, which reads what anybody may have written."""

import math
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.transports import a_chunk_header, a_header
from disttrain.state.vector import Vector
from disttrain.transport import framing
from disttrain.transport.errors import (
    ConnectionLost,
    MalformedMessage,
    Refusal,
    UnreadableStream,
)
from disttrain.transport.header import (
    ELEMENT_BYTES,
    PROTOCOL_VERSION,
    ElementType,
    Header,
    Reason,
    Role,
    Verb,
)
from disttrain.transport.stream import Stream

JOB = 0x1234
VALID = framing.encode(a_chunk_header(Verb.PUSH, 4), job=JOB, place=(0, 0, 16))

small = st.integers(0, (1 << 32) - 1)
large = st.integers(0, (1 << 58))


@st.composite
def chunk_headers(draw: st.DrawFn) -> tuple[Header, tuple[int, int, int]]:
    element_type = draw(st.sampled_from(ElementType))
    count = draw(st.integers(0, 1 << 40))
    chunks = draw(st.integers(1, (1 << 32) - 1))
    header = a_header(
        draw(st.sampled_from([Verb.UPLOAD, Verb.PUSH, Verb.STAGE, Verb.FETCHED])),
        role=draw(st.sampled_from(Role)),
        sender=draw(small),
        incarnation=draw(small),
        receiver_incarnation=draw(small),
        sequence=draw(large),
        version_incarnation=draw(small),
        version=draw(large),
        reason=draw(st.sampled_from(Reason)),
        vector=draw(st.integers(0, 255)),
        element_type=element_type,
        chunk=draw(st.integers(0, chunks - 1)),
        chunks=chunks,
        first=draw(large),
        count=count,
        samples=draw(st.integers(0, (1 << 40) - 1)),
        lease=draw(large),
        lease_offset=draw(large),
        scale=draw(st.floats(allow_nan=False, allow_infinity=False)),
        staleness=draw(st.integers(-1, 1 << 62)),
    )
    offset = draw(st.integers(0, 1 << 40)) * 8
    nbytes = Vector(0, "parameters", element_type).place_of(header.first, count)[1]
    return header, (draw(small), offset, nbytes)


@given(chunk_headers())
def test_what_was_encoded_is_decoded(sent: tuple[Header, tuple[int, int, int]]) -> None:
    header, place = sent
    frame = framing.encode(header, job=JOB, place=place)
    assert len(frame) == framing.HEADER_BYTES
    assert framing.decode(frame, job=JOB) == Header._make((header.verb, JOB, *header[2:-3], *place))


@given(st.binary(min_size=framing.HEADER_BYTES, max_size=framing.HEADER_BYTES))
def test_any_bytes_are_refused_and_nothing_else_is_raised(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        framing.decode(frame, job=JOB)


@given(st.binary(min_size=framing.HEADER_BYTES - 14, max_size=framing.HEADER_BYTES - 14))
def test_any_fields_behind_the_right_prefix_are_consistent_or_refused(fields: bytes) -> None:
    try:
        header = framing.decode(VALID[:6] + fields[:1] + VALID[7:15] + fields[1:], job=JOB)
    except MalformedMessage:
        return
    check_promises(header)


@given(st.data())
def test_any_changed_byte_gives_a_consistent_header_or_a_refusal(data: st.DataObject) -> None:
    frame = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        header = framing.decode(bytes(frame), job=JOB)
    except MalformedMessage:
        return
    check_promises(header)


def check_promises(header: Header) -> None:
    """What the code behind the decoder relies on."""
    assert header.job == JOB
    assert header.verb in set(Verb)
    assert header.role in set(Role)
    assert header.reason in set(Reason)
    assert math.isfinite(header.scale)
    assert header.first + header.count < 1 << 63
    assert header.segment_offset + header.payload_bytes < 1 << 63
    assert max(header.version, header.lease, header.lease_offset, header.sequence) < 1 << 62
    assert header.samples < 1 << (40 if header.verb == Verb.PUSH else 62)
    if header.verb in (Verb.UPLOAD, Verb.PUSH, Verb.STAGE, Verb.FETCHED):
        size = ELEMENT_BYTES[ElementType(header.element_type)]
        assert header.count * size == header.payload_bytes
        assert header.segment_offset % size == 0
        assert header.chunk < header.chunks


@pytest.mark.parametrize(
    ("changed", "place", "refusal"),
    [
        ({"verb": 99}, (0, 0, 16), Refusal.FIELDS),
        ({"role": 0}, (0, 0, 16), Refusal.FIELDS),
        ({"reason": 200}, (0, 0, 16), Refusal.FIELDS),
        ({"element_type": 4}, (0, 0, 16), Refusal.FIELDS),
        ({"scale": math.nan}, (0, 0, 16), Refusal.FIELDS),
        ({"scale": math.inf}, (0, 0, 16), Refusal.FIELDS),
        ({"count": 5}, (0, 0, 16), Refusal.FIELDS),
        ({"chunk": 1}, (0, 0, 16), Refusal.FIELDS),
        ({"first": 1 << 62}, (0, 0, 16), Refusal.FIELDS),
        ({"samples": 1 << 40}, (0, 0, 16), Refusal.FIELDS),
        ({"lease": 1 << 63}, (0, 0, 16), Refusal.FIELDS),
        ({"lease_offset": (1 << 64) - 1}, (0, 0, 16), Refusal.FIELDS),
        ({"version": 1 << 63}, (0, 0, 16), Refusal.FIELDS),
        ({"verb": Verb.PUSHED}, (0, 0, 16), Refusal.FIELDS),
        ({"verb": Verb.STAGED}, (0, 0, 16), Refusal.FIELDS),
        ({"verb": Verb.HELLO}, (1, 0, 16), Refusal.FIELDS),
        ({}, (1, 2, 16), Refusal.FIELDS),
        ({}, (1, 1 << 62, 16), Refusal.FIELDS),
    ],
)
def test_a_contradiction_is_refused(
    changed: dict[str, Any], place: tuple[int, int, int], refusal: Refusal
) -> None:
    frame = framing.encode(a_chunk_header(Verb.PUSH, 4)._replace(**changed), job=JOB, place=place)
    with pytest.raises(MalformedMessage) as caught:
        framing.decode(frame, job=JOB)
    assert caught.value.refusal is refusal


def test_another_protocol_or_version_is_refused_by_its_own_name() -> None:
    for frame, refusal in (
        (b"HTTP" + VALID[4:], Refusal.MAGIC),
        (VALID[:4] + b"\7\0" + VALID[6:], Refusal.MAGIC),
    ):
        with pytest.raises(MalformedMessage) as caught:
            framing.decode(frame, job=JOB)
        assert caught.value.refusal is refusal
    with pytest.raises(MalformedMessage) as caught:
        framing.decode(VALID, job=JOB + 1)
    assert caught.value.refusal is Refusal.WRONG_JOB


def test_a_field_that_does_not_fit_is_the_callers_error() -> None:
    with pytest.raises(ValueError, match="sender=-1"):
        framing.encode(a_header(Verb.HELLO, sender=-1), job=JOB)


class TakesAFew:
    """A stream that takes so many bytes at once, and is lost after so many writes."""

    def __init__(self, at_once: int, writes: int) -> None:
        self.taken = b""
        self._at_once = at_once
        self._writes = writes

    def write(self, parts: Sequence[memoryview]) -> int:
        if not self._writes:
            message = "on purpose"
            raise ConnectionLost(message)
        self._writes -= 1
        some = b"".join(parts)[: self._at_once]
        self.taken += some
        return len(some)


def test_half_a_message_is_not_sent_over_the_next_connection() -> None:
    outbox = framing.Outbox(4)
    for message in (b"first", b"second", b"third"):
        outbox.add(message[:2], memoryview(message[2:]))
    lost, kept = TakesAFew(3, 3), TakesAFew(100, 100)

    with pytest.raises(ConnectionLost):
        outbox.flush(cast(Stream, lost))
    outbox.drop_begun()
    outbox.flush(cast(Stream, kept))

    assert (lost.taken, kept.taken) == (b"firstsec", b"third")
    assert not outbox


def test_a_message_that_has_not_begun_is_kept_for_the_next_connection() -> None:
    outbox = framing.Outbox(4)
    outbox.add(b"whole")
    with pytest.raises(ConnectionLost):
        outbox.flush(cast(Stream, TakesAFew(3, 0)))
    outbox.drop_begun()
    outbox.flush(cast(Stream, kept := TakesAFew(100, 100)))
    assert kept.taken == b"whole"


class Says:
    def __init__(self, said: bytes) -> None:
        self._said = said

    def read_into(self, place: memoryview) -> int:
        part, self._said = self._said[: place.nbytes], self._said[place.nbytes :]
        place[: len(part)] = part
        return len(part)


def test_a_peer_of_another_version_is_told_apart_by_both_versions() -> None:
    greeting = bytearray(framing.greeting(JOB))
    greeting[4:6] = (PROTOCOL_VERSION - 1).to_bytes(2, "little")
    with pytest.raises(
        UnreadableStream, match=f"version {PROTOCOL_VERSION - 1} instead of {PROTOCOL_VERSION}"
    ) as raised:
        framing.Inbox(JOB, 1 << 20).is_greeted(cast(Stream, Says(bytes(greeting))))
    assert raised.value.refusal == Refusal.MAGIC
