"""Manifests: what comes back is what was written, and nothing else comes back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.checkpoints import a_checkpoint
from disttrain.checkpoint import manifest_text, names, reading
from disttrain.checkpoint.manifest_text import MalformedManifest
from disttrain.state.placement import Range

Json = dict[str, Any]


@pytest.fixture(name="content")
def _content(tmp_path: Path) -> Json:
    text = (a_checkpoint(tmp_path).path / names.MANIFEST).read_text()
    found: Json = json.loads(text)
    return found


def test_a_manifest_survives_the_way_through_its_text(tmp_path: Path) -> None:
    manifest = a_checkpoint(tmp_path, shards=3).manifest
    assert manifest_text.parse(manifest_text.encode(manifest)) == manifest


def test_vectors_are_written_by_name(content: Json) -> None:
    placement = content["placement"]
    assert placement["vectors"] == ["0/parameters/float32", "0/sum_of_squares/float32"]
    assert placement["holders"] == [[[0, 0, 48], [1, 0, 48]], [[0, 48, 85], [1, 48, 85]]]
    assert content["pieces"][0]["vector"] == "0/parameters/float32"
    assert content["pieces"][0]["slices"] == [{"first": 0, "end": 5}, {"first": 0, "end": 7}]


def _set(*path: str | int, to: object) -> Callable[[Json], None]:
    def change(content: Any) -> None:
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = to

    return change


def _drop(*path: str | int) -> Callable[[Json], None]:
    def change(content: Any) -> None:
        for step in path[:-1]:
            content = content[step]
        del content[path[-1]]

    return change


def _repeat(key: str) -> Callable[[Json], None]:
    return lambda content: content[key].append(content[key][0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("format_version", to=3), "format_version"),
        (_set("format_version", to=1), "shards: Field required"),
        (_drop("format_version"), "format_version"),
        (_set("surprise", to=1), "surprise"),
        (_set("number", to=-1), "number"),
        (_set("number", to=2**63), "number"),
        (_set("number", to="1"), "number"),
        (_set("samples", to=1.5), "samples"),
        (_set("update_rule", to="../adagrad"), "update_rule"),
        (_set("holders", to=[]), "holders"),
        (_set("holders", 0, "file", "name", to="../../etc/passwd"), "its file is"),
        (_set("holders", 0, "file", "name", to="/etc/passwd"), "its file is"),
        (_set("holders", 0, "file", "name", to="part-00001.safetensors"), "its file is"),
        (_set("coordinator", "name", to="../coordinator.json"), "its file is"),
        (_set("holders", 0, "file", "hash", to="md5:0"), "hash"),
        (_set("holders", 0, "index", to=1), "its index is 1"),
        (_set("placement", "vectors", 0, to="WEIGHTS"), "names no vector"),
        (_set("placement", "vectors", 0, to="1/parameters/float32"), "not covered exactly once"),
        (_set("placement", "vectors", 0, to="0/buffers/float32"), "not covered exactly once"),
        (_set("placement", "vectors", 1, to="1/momentum/float32"), "have another length"),
        (_set("placement", "holders", 0, 0, 2, to=31), "not held exactly once"),
        (_set("placement", "holders", 0, 0, 2, to=49), "not held exactly once"),
        (_set("placement", "holders", 0, 0, 1, to=1), "not held exactly once"),
        (_set("placement", "holders", 0, 0, 0, to=1), "two ranges of one vector"),
        (_set("placement", "holders", 0, 0, 0, to=2), "has vector 2 of 2"),
        (_set("placement", "holders", 1, 1, 2, to=80), "have another length"),
        (_set("placement", "epoch", to=-1), "epoch"),
        (_drop("placement", "holders", 1), "not held exactly once|there are 2"),
        (_drop("holders", 1), "there are 1, the placement has 2"),
        (_repeat("tensors"), "occurs twice"),
        (_set("tensors", 0, "aliases", to=["second.weight"]), "occurs twice"),
        (_set("tensors", 0, "shape", to=[5, 8]), "has 40 elements"),
        (_set("tensors", 0, "shape", to=[7, 5]), "lies outside its shape"),
        (_set("tensors", 0, "shape", to=[35]), "lies outside its shape"),
        (_set("tensors", 0, "dtype", to="float8"), "unknown type"),
        (_set("tensors", 0, "dtype", to="int64"), "vector of another type"),
        (_drop("tensors", 0), "does not have"),
        (_drop("pieces", 0), "its pieces have 0"),
        (_repeat("pieces"), "its pieces have 70"),
        (_set("pieces", 1, "first", to=34), "not covered exactly once"),
        (_set("pieces", 1, "vector", to="0/sum_of_squares/float32"), "not covered exactly once"),
        (_set("pieces", 0, "slices", 0, "first", to=6), "outside its shape"),
    ],
)
def test_a_wrong_manifest_is_refused(
    content: Json, change: Callable[[Json], None], said: str
) -> None:
    change(content)
    with pytest.raises(MalformedManifest, match=said):
        manifest_text.parse(json.dumps(content).encode())


def test_more_pieces_than_can_be_compared_are_refused(content: Json) -> None:
    content["tensors"][1]["shape"] = [1025]
    bias = content["pieces"][1]
    content["pieces"][1:2] = [
        bias | {"slices": [{"first": place, "end": place + 1}], "first": 35 + place}
        for place in range(1025)
    ]
    with pytest.raises(MalformedManifest, match="has 1025 pieces; at most 1024"):
        manifest_text.parse(json.dumps(content).encode())


def test_pieces_that_overlap_are_refused(content: Json) -> None:
    half = {"first": 0, "end": 5}
    row = {"tensor": "first.weight", "vector": "0/parameters/float32"}
    first = {**row, "slices": [half, {"first": 0, "end": 4}], "first": 0}
    second = {**row, "slices": [half, {"first": 3, "end": 6}], "first": 20}
    content["pieces"][0:1] = [first, second]
    with pytest.raises(MalformedManifest, match="overlap"):
        manifest_text.parse(json.dumps(content).encode())


@pytest.mark.parametrize(
    "text", [b"", b"[", b"[]", b"null", b'{"format": 1}', b"\xff\xfe", b"[" * 90_000]
)
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedManifest):
        manifest_text.parse(text)


def test_a_text_that_is_too_long_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_text, "LIMIT_BYTES", 10)
    with pytest.raises(MalformedManifest, match="it has 11 bytes"):
        manifest_text.parse(b" " * 11)


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_bytes_give_a_manifest_or_the_one_error(content: bytes) -> None:
    with pytest.raises(MalformedManifest):
        manifest_text.parse(content)


JSON_VALUES: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers(-2, 100) | st.text(max_size=4) | st.just([])
)


@given(st.data())
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_changed_is_refused_or_can_be_restored(
    content: Json, data: st.DataObject
) -> None:
    changed = json.loads(json.dumps(content))
    place: Any = changed
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        parent, key = place, data.draw(st.sampled_from(keys))
        place = parent[key]
    parent[key] = data.draw(JSON_VALUES)
    try:
        manifest = manifest_text.parse(json.dumps(changed).encode())
    except MalformedManifest:
        return
    for piece in manifest.pieces:
        wanted = Range(piece.first, piece.first + piece.elements)
        found = reading.parts(manifest, piece.vector, wanted)
        assert sum(part.count for part in found) == piece.elements
