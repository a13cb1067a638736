"""What every store of checkpoints promises, whatever keeps them: a folder, or an object store."""

from dataclasses import replace

import pytest

from builders import object_stores, placements
from builders.checkpoints import a_layout, a_manifest, a_placement, counting, put_part
from builders.object_stores import a_checkpoint
from disttrain.checkpoint import digest, names, objects, part_file, reading, stores, tensor_file
from disttrain.checkpoint.errors import AlreadyThere, Corrupt, NoCheckpoint
from disttrain.checkpoint.manifest import LONGEST_NAME, FileEntry, VectorEntry
from disttrain.checkpoint.part_file import Content
from disttrain.job.location import Location
from disttrain.state.layout import ModelLayout

LAYOUT = a_layout()


@pytest.fixture(name="at", params=object_stores.KINDS)
def _at(request: pytest.FixtureRequest) -> Location:
    return object_stores.location(request, request.param)


def numbers(at: Location) -> list[int]:
    return [found.manifest.number for found in stores.open_store(at).list()]


def a_vector(fill: int) -> Content:
    tensor = tensor_file.Tensor(name=names.VECTOR, type="F32", shape=(8,))
    return Content(tensor=tensor, pieces=[bytes([fill]) * 32])


def empty_manifest(at: Location, number: int) -> None:
    if at.uri:
        objects.open_objects(at.uri).write(names.manifest_object(number), b"")
        return
    folder = at.folder / names.folder(number)
    folder.mkdir()
    (folder / names.MANIFEST).touch()


def test_an_empty_store_has_no_checkpoint(at: Location) -> None:
    store = stores.open_store(at)
    assert (store.list(), store.latest(), store.next_number()) == ((), None, 1)
    assert store.retain(1) == ()
    with pytest.raises(NoCheckpoint):
        store.read(at.folder / "00000001")


def test_a_committed_checkpoint_is_found_and_whole(at: Location) -> None:
    committed = a_checkpoint(at, 3)
    store = stores.open_store(at)
    found = store.latest()
    assert found is not None
    assert found.manifest == committed.manifest
    assert store.read(found.path) == found
    assert store.ledger(found) == b'{"ledger": 3}'
    assert store.next_number() == 4
    store.bring(found)
    assert reading.verified(found.path) == found
    assert (found.path / names.COORDINATOR).read_bytes() == b'{"ledger": 3}'


def test_one_file_is_brought_without_the_others(at: Location) -> None:
    found = a_checkpoint(at)
    entry = found.manifest.holders[1].file
    store = stores.open_store(at)
    store.bring(found, [entry])
    assert part_file.digest_of(found.path / entry.name).hash == entry.hash


def test_nobody_finds_what_is_not_committed(at: Location) -> None:
    a_checkpoint(at, 1)
    store = stores.open_store(at)
    store.begin(2).write_coordinator(b"{}")
    put_part(
        stores.open_parts(at)(store.staging(2)),
        0,
        a_placement(LAYOUT, 1).ranges(0),
        counting(LAYOUT),
    )
    assert numbers(at) == [1]
    store.abandon(2)
    store.abandon(7)
    assert numbers(at) == [1]


def test_an_empty_manifest_hides_no_other_checkpoint(at: Location) -> None:
    whole = a_checkpoint(at, 1)
    empty_manifest(at, 2)
    store = stores.open_store(at)
    assert store.latest() == whole
    assert store.list() == (whole,)
    assert store.numbers() == (1, 2)
    assert store.next_number() == 3
    with pytest.raises(Corrupt):
        store.read(whole.path.with_name(names.folder(2)))


def test_a_commit_is_refused_when_a_file_is_missing_or_short(at: Location) -> None:
    store = stores.open_store(at)
    own = store.begin(1).write_coordinator(b"{}")
    parts = stores.open_parts(at)(store.staging(1))
    entry = put_part(parts, 0, a_placement(LAYOUT, 1).ranges(0), counting(LAYOUT))
    missing = FileEntry(name=names.COORDINATOR, bytes=3, hash=digest.of(b"abc"))
    short = FileEntry(name=own.name, bytes=own.bytes + 1, hash=own.hash)
    for wrong in (missing, short):
        with pytest.raises(Corrupt):
            store.commit(a_manifest([entry], layout=LAYOUT, coordinator=wrong))
    assert numbers(at) == []
    store.commit(a_manifest([entry], layout=LAYOUT, coordinator=own))
    assert numbers(at) == [1]


def test_a_commit_is_refused_that_no_reader_would_take(at: Location) -> None:
    store = stores.open_store(at)
    own = store.begin(1).write_coordinator(b"{}")
    parts = stores.open_parts(at)(store.staging(1))
    entry = put_part(parts, 0, a_placement(LAYOUT, 1).ranges(0), counting(LAYOUT))
    lying = replace(entry, file=replace(entry.file, name="../part-00000.safetensors"))
    with pytest.raises(Corrupt, match="its file is"):
        store.commit(a_manifest([lying], layout=LAYOUT, coordinator=own))
    assert numbers(at) == []


def test_a_commit_is_refused_of_a_name_that_no_reader_takes(at: Location) -> None:
    store = stores.open_store(at)
    layout = ModelLayout(
        tensors=tuple(replace(spec, name=spec.name * LONGEST_NAME) for spec in LAYOUT.tensors)
    )
    own = store.begin(1).write_coordinator(b"{}")
    parts = stores.open_parts(at)(store.staging(1))
    entry = put_part(parts, 0, a_placement(layout, 1).ranges(0), counting(layout))
    with pytest.raises(Corrupt, match=r"tensors\.0\.name: String should have at most 4096"):
        store.commit(a_manifest([entry], layout=layout, coordinator=own))
    assert numbers(at) == []


def test_a_number_is_not_used_twice(at: Location) -> None:
    a_checkpoint(at, 1)
    with pytest.raises(AlreadyThere, match="begin checkpoint 2 instead"):
        stores.open_store(at).begin(1)


def test_the_newest_are_kept_whole_and_the_others_deleted(at: Location) -> None:
    store = stores.open_store(at)
    for number in (1, 2, 3, 4):
        a_checkpoint(at, number)
    assert store.retain(2) == (1, 2)
    assert numbers(at) == [3, 4]
    for found in store.list():
        store.bring(found)
        reading.verified(found.path)
    assert store.retain(2) == ()


def test_what_an_interrupted_writing_left_is_deleted(at: Location) -> None:
    store = stores.open_store(at)
    entry = store.begin(1).write_coordinator(b"left over")
    whole = a_checkpoint(at, 2)
    store.retain(3)
    left = replace(whole.manifest, number=1, coordinator=entry)
    with pytest.raises(Corrupt):
        store.commit(left)
    assert numbers(at) == [2]


def test_a_vector_is_shared_until_the_last_checkpoint_that_has_it_is_gone(at: Location) -> None:
    store = stores.open_store(at)
    store.begin(1)
    entry = stores.open_parts(at)(store.staging(1)).write_vector("draft", a_vector(1))
    _commit_with(at, 1, entry)
    store.begin(2)
    assert stores.open_parts(at)(store.staging(2)).share(entry)
    _commit_with(at, 2, entry)
    assert store.retain(1) == (1,)
    (last,) = store.list()
    store.bring(last)
    reading.verified(last.path)

    a_checkpoint(at, 3)
    assert store.retain(1) == (2,)
    store.begin(4)
    assert not stores.open_parts(at)(store.staging(4)).share(entry)


def _commit_with(at: Location, number: int, vector: FileEntry) -> None:
    store = stores.open_store(at)
    parts = stores.open_parts(at)(store.staging(number))
    shard = put_part(parts, 0, a_placement(LAYOUT, 1).ranges(0), counting(LAYOUT), number)
    s0 = placements.PARAMETERS.beside("s0")
    shard = replace(shard, vectors=(VectorEntry(vector=s0, file=vector),))
    store.commit(a_manifest([shard], layout=LAYOUT, number=number))
