"""Vectors in files of their own: named by what is in them, shared by checkpoints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import batch_shards
from builders.checkpoints import folder_of
from builders.flaky_objects import FlakyObjects
from disttrain.checkpoint import manifest_text, names, part_file, stores, tensor_file
from disttrain.checkpoint.errors import NotWritten
from disttrain.checkpoint.manifest import FileEntry
from disttrain.checkpoint.manifest_text import MalformedManifest
from disttrain.checkpoint.part_file import Content
from disttrain.checkpoint.storage import Storage
from disttrain.checkpoint.stores import Parts


def a_vector(*values: float) -> Content:
    content = np.array(values, "<f8")
    tensor = tensor_file.Tensor(name=names.VECTOR, type="F64", shape=(content.size,))
    return Content(tensor=tensor, pieces=[content.tobytes()])


def test_the_name_is_the_hash_of_what_is_in_it(tmp_path: Path) -> None:
    first = part_file.write_vector(tmp_path, "one", a_vector(1, 2))
    again = part_file.write_vector(tmp_path, "other", a_vector(1, 2))
    other = part_file.write_vector(tmp_path, "other", a_vector(1, 3))

    assert first == again != other
    assert {path.name for path in tmp_path.iterdir()} == {first.name, other.name}
    found = part_file.digest_of(tmp_path / first.name)
    assert first == FileEntry(
        name=names.vector_file(found.hash), bytes=found.bytes, hash=found.hash
    )


def test_a_link_is_another_name_of_the_same_file(tmp_path: Path) -> None:
    store = stores.in_folder(tmp_path)
    entry = a_shared_vector(tmp_path)
    old, new = tmp_path / names.folder(1), folder_of(store.begin(2))

    for _ in range(2):  # Another vector with the same elements.
        assert Parts(store.storage, 2).share(entry)
    assert (old / entry.name).samefile(new / entry.name)
    (old / entry.name).unlink()
    assert part_file.digest_of(new / entry.name).hash == entry.hash


def test_what_is_gone_or_short_is_not_linked(tmp_path: Path) -> None:
    store = stores.in_folder(tmp_path)
    entry = a_shared_vector(tmp_path)
    old, new = tmp_path / names.folder(1), folder_of(store.begin(2))
    (old / entry.name).write_bytes((old / entry.name).read_bytes()[:-1])

    assert not Parts(store.storage, 2).share(entry)
    (old / entry.name).unlink()
    assert not Parts(store.storage, 2).share(entry)
    assert list(new.iterdir()) == []


def test_where_vectors_may_be_shared_from_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.in_folder(tmp_path)
    entry = a_shared_vector(tmp_path)
    store.begin(2)
    looks: list[set[int]] = []
    numbers = store.storage.numbers

    def look() -> set[int]:
        looks.append(numbers())
        return looks[-1]

    monkeypatch.setattr(store.storage, "numbers", look)
    parts = Parts(store.storage, 2)
    for _ in range(2):
        assert parts.share(entry)
    assert looks == [{1}]


def test_what_a_killed_shard_wrote_beside_an_object_store_goes_at_the_next_writing(
    tmp_path: Path,
) -> None:
    storage = Storage(FlakyObjects(), tmp_path)
    killed = storage.room(1)
    (killed.__enter__() / "part").write_bytes(b"half")
    Parts(storage, 2).write_vector("draft", a_vector(1))
    assert list(tmp_path.iterdir()) == []


def a_shared_vector(folder: Path) -> FileEntry:
    """One that is in checkpoint 1."""
    old = folder / names.folder(1)
    old.mkdir()
    return part_file.write_vector(old, "draft", a_vector(1, 2))


def test_a_draft_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Any:
        yield b"1234"
        raise NotWritten

    content = Content(tensor=a_vector(1, 2).tensor, pieces=broken())
    with pytest.raises(NotWritten):
        part_file.write_vector(tmp_path, "draft", content)
    assert list(tmp_path.iterdir()) == []


def _elsewhere(vector: dict[str, Any]) -> None:
    vector["file"]["name"] = "../00000001/part-00000.safetensors"


def _of_another_hash(vector: dict[str, Any]) -> None:
    vector["file"]["hash"] = "xxh3_128:" + "0" * 32


def _values(vector: dict[str, Any]) -> None:
    vector["vector"] = "0/parameters/float32"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_elsewhere, "not vector-"),
        (_of_another_hash, "not vector-0000"),
        (_values, "it is no optimizer's state"),
    ],
)
def test_a_manifest_with_another_file_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    shard = batch_shards.a_shard()
    batch_shards.one_iteration([shard])
    checkpoint = batch_shards.commit(tmp_path, [shard])
    text = (checkpoint.path / names.MANIFEST).read_bytes()
    assert manifest_text.parse(text) == checkpoint.manifest
    content = json.loads(text)
    change(content["holders"][0]["vectors"][0])
    with pytest.raises(MalformedManifest, match=said):
        manifest_text.parse(json.dumps(content).encode())


def test_a_vector_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    shard = batch_shards.a_shard()
    batch_shards.one_iteration([shard])
    checkpoint = batch_shards.commit(tmp_path, [shard])
    content = json.loads((checkpoint.path / names.MANIFEST).read_text())
    content["holders"][0]["vectors"] *= 2
    with pytest.raises(MalformedManifest, match="is there twice"):
        manifest_text.parse(json.dumps(content).encode())
