"""A checkpoint in an object store is there whole or not at all, whatever happens to its writer."""

from contextlib import suppress
from pathlib import Path

import pytest

from builders import dying_writers
from builders.checkpoints import a_layout, a_manifest, a_placement, counting, put_part
from builders.flaky_objects import Fault, FlakyObjects
from disttrain.checkpoint import names, reading, stores
from disttrain.checkpoint.errors import NotWritten
from disttrain.checkpoint.manifest import Manifest
from disttrain.checkpoint.objects import open_objects
from disttrain.checkpoint.storage import Storage
from disttrain.checkpoint.stores import Parts, Store
from disttrain.job.location import Location

LAYOUT = a_layout()


def staged(store: Store, number: int, version: int | None = None) -> Manifest:
    """All of a checkpoint but its manifest; the version makes its data what it is."""
    own = store.begin(number).write_coordinator(b'{"ledger": []}')
    parts = Parts(store.storage, number)
    ranges = a_placement(LAYOUT, 1).ranges(0)
    shard = put_part(parts, 0, ranges, counting(LAYOUT), version=version or number)
    return a_manifest([shard], layout=LAYOUT, number=number, coordinator=own)


def assert_whole(store: Store) -> list[int]:
    """The numbers of all checkpoints, each of which is whole."""
    store.drop_copies()
    found = store.list()
    for one in found:
        store.bring(one)
        reading.verified(one.path)
    return [one.manifest.number for one in found]


def test_a_killed_writer_leaves_the_previous_checkpoint_or_the_whole_new_one(
    tmp_path: Path,
) -> None:
    deaths = dying_writers.deaths(tmp_path, "objects")
    assert deaths[-1] == {"status": 0, "latest": 2, "complete": [2]}
    assert len(deaths) > 20  # Lists, the parts, the manifest, what is deleted: before and after.
    latest = [death["latest"] for death in deaths]
    assert latest == sorted(latest)
    assert set(latest) == {1, 2}
    assert [death["complete"][-1] for death in deaths] == latest
    at = Location(tmp_path / "copies", f"local://{tmp_path}/store")
    (whole,) = stores.open_store(at).list()
    there = open_objects(at.uri).sizes(names.DATA)
    assert there.keys() == {names.data(entry) for entry in whole.manifest.files}


@pytest.mark.parametrize("fault", Fault)
def test_an_upload_that_fails_commits_nothing_and_breaks_nothing(
    tmp_path: Path, fault: Fault
) -> None:
    objects = FlakyObjects()
    store = Store(Storage(objects, tmp_path))
    store.commit(staged(store, 1))
    for place in (0, 1):
        objects.faults = [None] * place + [fault]
        with pytest.raises(NotWritten):
            staged(store, 2)
        assert assert_whole(store) == [1]
    store.commit(staged(store, 2))
    objects.arrive()
    store.retain(3)
    assert assert_whole(store) == [1, 2]


def test_a_commit_whose_answer_is_lost_is_seen_to_have_happened(tmp_path: Path) -> None:
    objects = FlakyObjects()
    store = Store(Storage(objects, tmp_path))
    manifest = staged(store, 1)
    objects.faults = [Fault.ANSWER_LOST]
    assert store.commit(manifest).manifest == manifest
    assert assert_whole(store) == [1]


def test_a_refused_commit_leaves_the_one_before_it(tmp_path: Path) -> None:
    objects = FlakyObjects()
    store = Store(Storage(objects, tmp_path))
    store.commit(staged(store, 1))
    manifest = staged(store, 2)
    objects.faults = [Fault.REFUSED]
    with pytest.raises(NotWritten):
        store.commit(manifest)
    assert assert_whole(store) == [1]


def test_a_part_that_arrives_after_the_commit_changes_nothing(tmp_path: Path) -> None:
    objects = FlakyObjects(faults=[None, Fault.LATE])
    store = Store(Storage(objects, tmp_path))
    with pytest.raises(NotWritten):
        staged(store, 1)
    store.commit(staged(store, 1))
    before = dict(objects.there)
    objects.arrive()
    assert objects.there == before


@pytest.mark.parametrize("fault", Fault)
def test_no_checkpoint_rests_on_data_whose_deletion_may_still_happen(
    tmp_path: Path, fault: Fault
) -> None:
    # Names say what is in an object, so a batch method that returns to earlier values needs one
    # again that was deleted.
    objects = FlakyObjects()
    store = Store(Storage(objects, tmp_path))
    for number in (1, 2):
        store.commit(staged(store, number))
    # Of the manifest, and of the data; then of the data again as the next one begins.
    objects.delete_faults = [None, fault, fault]
    assert store.retain(1) == (1,)
    _try(store, 3)
    objects.arrive()
    assert set(assert_whole(store)) <= {2, 3}
    store.commit(staged(store, 4, version=1))
    objects.arrive()
    assert assert_whole(store)[-1] == 4


def _try(store: Store, number: int) -> None:
    with suppress(NotWritten):
        store.commit(staged(store, number, version=1))


def data_of(objects: FlakyObjects) -> set[str]:
    return {name for name in objects.there if name.startswith(names.DATA)}


def test_no_data_is_deleted_while_a_newer_manifest_cannot_be_read(tmp_path: Path) -> None:
    objects = FlakyObjects()
    store = Store(Storage(objects, tmp_path))
    store.commit(staged(store, 1))
    store.commit(staged(store, 2))
    objects.there[names.manifest_object(2)] += b"damage"
    before = data_of(objects)
    assert store.retain(1) == ()
    assert data_of(objects) == before


def test_a_damaged_manifest_goes_with_the_old_ones_and_what_it_named(tmp_path: Path) -> None:
    objects = FlakyObjects()
    store = Store(Storage(objects, tmp_path))
    store.commit(staged(store, 1))
    objects.there[names.manifest_object(1)] += b"damage"
    whole = store.commit(staged(store, 2)).manifest
    assert store.retain(1) == (1,)
    assert data_of(objects) == {names.data(entry) for entry in whole.files}
    assert assert_whole(store) == [2]


def test_no_data_is_deleted_when_the_manifests_are_not_listed(tmp_path: Path) -> None:
    class Forgetful(FlakyObjects):
        def sizes(self, folder: str) -> dict[str, int]:
            found = super().sizes(folder)
            if folder == names.DATA:
                self.there = {name: self.there[name] for name in found}
            return found

    objects = FlakyObjects()
    store = Store(Storage(objects, tmp_path))
    store.commit(staged(store, 1))
    forgetful = Forgetful(there=objects.there)
    assert Store(Storage(forgetful, tmp_path)).retain(1) == ()
    assert data_of(forgetful) == data_of(objects)
