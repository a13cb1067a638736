"""Headers of safetensors files: as the library reads them, and refused when they lie."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from disttrain.checkpoint import tensor_file
from disttrain.checkpoint.tensor_file import MalformedHeader, Tensor

TENSORS = (
    Tensor(name="a", type="F64", shape=(3,)),
    Tensor(name="b", type="F32", shape=(2, 2)),
    Tensor(name="empty", type="I64", shape=(0, 4)),
    Tensor(name="flag", type="BOOL", shape=()),
)


def test_the_library_reads_what_follows_our_header(tmp_path: Path) -> None:
    header = tensor_file.encode(TENSORS, {"version": "3"})
    data = np.array([1.0, 2.0, 3.0]).tobytes() + np.ones((2, 2), np.float32).tobytes() + b"\x01"
    (tmp_path / "file").write_bytes(header + data)
    found = load_file(tmp_path / "file")
    assert found["a"].tolist() == [1.0, 2.0, 3.0]
    assert found["b"].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert found["empty"].shape == (0, 4)
    assert found["flag"].item() is True


def test_a_header_survives_the_way_through_its_bytes() -> None:
    encoded = tensor_file.encode(TENSORS, {"version": "3", "sprache": "größe"})
    header = tensor_file.parse(encoded[8:])
    assert header.tensors == TENSORS
    assert header.metadata == {"version": "3", "sprache": "größe"}
    assert header.data_start == len(encoded)
    assert len(encoded) % 64 == 0
    assert header.file_bytes == len(encoded) + 24 + 16 + 1


def test_lengths_beyond_the_file_or_the_limit_are_refused() -> None:
    assert tensor_file.text_bytes((56).to_bytes(8, "little"), 64) == 56
    for prefix, size in ((57, 64), (2**63, 2**40), (tensor_file.LIMIT_BYTES + 1, 2**40)):
        with pytest.raises(MalformedHeader, match="its header cannot have"):
            tensor_file.text_bytes(prefix.to_bytes(8, "little"), size)
    with pytest.raises(MalformedHeader):
        tensor_file.text_bytes(b"\x00" * 7, 7)


def _entry(**changes: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "no JSON object"),
        ({"__metadata__": {"a": 1}}, "not all text"),
        ({"a": 3}, "not described"),
        ({"a": _entry(extra=1)}, "not described"),
        ({"a": _entry(dtype="F7")}, "unknown type 'F7'"),
        ({"a": _entry(dtype=["F32"])}, "unknown type"),
        ({"a": _entry(shape="2")}, "no short list"),
        ({"a": _entry(shape=[1] * 65)}, "no short list"),
        ({"a": _entry(shape=[True])}, "other things than sizes"),
        ({"a": _entry(shape=[-2])}, "other things than sizes"),
        ({"a": _entry(shape=[2**48])}, "other things than sizes"),
        ({"a": _entry(shape=[3])}, "cannot lie at"),
        ({"a": _entry(data_offsets=[0])}, "cannot lie at"),
        ({"a": _entry(data_offsets=[4, 12])}, "gap or overlap at byte 0"),
        ({"a": _entry(), "b": _entry()}, "gap or overlap"),
        ({"a": _entry(), "b": _entry(data_offsets=[12, 20])}, "gap or overlap at byte 8"),
    ],
)
def test_a_lying_header_is_refused(content: object, said: str) -> None:
    with pytest.raises(MalformedHeader, match=said):
        tensor_file.parse(json.dumps(content).encode())


def test_a_name_that_occurs_twice_is_refused() -> None:
    entry = json.dumps(_entry())
    with pytest.raises(MalformedHeader, match="twice"):
        tensor_file.parse(f'{{"a": {entry}, "a": {entry}}}'.encode())


@pytest.mark.parametrize("text", [b"", b"\xff", b"[" * 100_000, b'{"a": NaN}'])
def test_what_is_no_json_of_a_header_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedHeader):
        tensor_file.parse(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["dtype", "shape", "data_offsets", "a"]), inner, max_size=3
            )
        ),
    )
)
@settings(max_examples=200, deadline=None)
def test_any_json_gives_a_header_or_the_one_error(content: object) -> None:
    try:
        header = tensor_file.parse(json.dumps(content).encode())
    except MalformedHeader:
        return
    assert header.file_bytes >= header.data_start
