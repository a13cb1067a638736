"""Bytes of any kind, and what is nearly right, are taken or refused with the reader's own error."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disttrain.job import credentials
from disttrain.parameter_server import messages
from disttrain.parameter_server.errors import RequestRefused
from disttrain.transport import segments
from disttrain.transport.errors import SegmentRefused
from disttrain_operator import json_text, times
from disttrain_operator.observed import outcomes

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def told(content: bytes) -> None:
    """What a coordinator or a stopped workload says of an end can be told to the API server."""
    text = content.decode(errors="replace")
    for found in (outcomes.from_termination(text, NOW), outcomes.from_annotation(text, NOW)):
        if found is not None:
            after = times.text(found.time + timedelta(days=365))
            json_text.write({"message": found.message, "after": after})


class Reader(NamedTuple):
    read: Callable[[bytes], Any]
    refusals: tuple[type[Exception], ...]
    """None: what is wrong is passed over."""
    right: dict[str, Any]


READERS = {
    "segment": Reader(
        segments.parse,
        (SegmentRefused,),
        {"segment": 1, "process": 2, "descriptor": 3, "nbytes": 4, "name": "n", "access": "read"},
    ),
    "credentials": Reader(
        credentials.parse, (ValueError,), {"certificate": "c", "key": "k", "authority": "a"}
    ),
    "welcome": Reader(
        messages.parse_welcome, (RequestRefused,), {"holder": 0, "epoch": 1, "chunk_bytes": 8}
    ),
    "outcome": Reader(
        told,
        (),
        {"phase": "Failed", "reason": "Error", "message": "why", "time": "2026-01-31T00:00:00Z"},
    ),
}
TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.datetimes().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


def taken_or_refused(reader: Reader, content: bytes) -> None:
    with suppress(*reader.refusals):
        reader.read(content)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@given(content=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_bytes_of_any_kind_are_refused_with_the_readers_own_error(
    reader: Reader, content: bytes
) -> None:
    taken_or_refused(reader, content)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@given(data=st.data(), value=VALUES)
def test_so_is_what_is_right_but_for_one_field(
    reader: Reader, data: st.DataObject, value: Any
) -> None:
    name = data.draw(st.sampled_from([*reader.right, "another"]))
    taken_or_refused(reader, json.dumps({**reader.right, name: value}).encode())


@pytest.mark.parametrize("content", [b"[" * 900, b'{"a":' * 600, b"9" * 1000])
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_so_is_what_is_very_deep_or_long(reader: Reader, content: bytes) -> None:
    taken_or_refused(reader, content)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_is_right_is_taken(reader: Reader) -> None:
    reader.read(json.dumps(reader.right).encode())


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59"])
def test_a_time_at_which_no_job_ends_is_passed_over(time: str) -> None:
    told(json.dumps({**READERS["outcome"].right, "time": time}).encode())


def test_what_is_no_text_in_a_message_is_replaced() -> None:
    """Names of files may be such, and the words of an error name them."""
    text = json.dumps({"phase": "Failed", "message": "no \udcff there"})
    found = outcomes.from_termination(text, NOW)
    assert found is not None
    assert found.message == "no ? there"
