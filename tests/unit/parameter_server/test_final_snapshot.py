"""What a shard that was told to end leaves for its next incarnation."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from builders import downpour_shards, placements
from builders.checkpoints import a_layout, a_manifest
from builders.flaky_objects import Fault, FlakyObjects
from disttrain.checkpoint import names
from disttrain.checkpoint.errors import Corrupt
from disttrain.checkpoint.manifest import FileEntry, HolderEntry, Manifest
from disttrain.checkpoint.storage import FolderStorage, Storage
from disttrain.holder.restoring import Wanted
from disttrain.job.update_rules.momentum import Momentum
from disttrain.parameter_server import final_snapshot, recovery, restoring, server
from disttrain.parameter_server.deliveries import Delivered, SenderIncarnation
from disttrain.parameter_server.final_snapshot import (
    LINGER_SECONDS,
    QUIET_SECONDS,
    GracefulShutdown,
    SnapshotWriter,
)
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.shard import Shard
from disttrain.state.share import Share

CHUNK_BYTES = 64
REPLICA = SenderIncarnation(3, 2)
MOMENTUM = placements.PARAMETERS.beside("momentum")
ELEMENTS = {placements.PARAMETERS: 64, placements.BUFFERS_INT64: 8}


def a_share(holders: int = 2) -> Share:
    return Share(placements.a_placement(ELEMENTS, holders, ("momentum",)), 1, CHUNK_BYTES)


WANTED = Wanted(
    share=a_share(),
    makers={"momentum": downpour_shards.with_state(("momentum",))},
    tables=restoring.TABLES,
)


def a_shard() -> Shard:
    state = ShardState(index=1, incarnation=4)
    shard = downpour_shards.build(state, Momentum(learning_rate=1.0))
    shard.configure(a_share().placement, CHUNK_BYTES)
    assert state.values is not None
    state.values.vectors[placements.PARAMETERS][:] = torch.arange(32.0)
    state.values.vectors[MOMENTUM][:] = torch.arange(32.0) / 2
    state.is_initialised = True
    state.count, state.samples = 17, 136
    state.deliveries.delivered[REPLICA] = Delivered(sequence=9, pushes=8, lease=5, lease_offset=3)
    return shard


def a_saver(folder: Path) -> SnapshotWriter:
    return SnapshotWriter(storage=FolderStorage(folder), job_uid="job", update_rule="momentum")


def save(folder: Path, checkpoint: int = 6) -> Shard:
    shard = a_shard()
    assert GracefulShutdown(shard, a_saver(folder)).save(checkpoint)
    return shard


def test_the_next_incarnation_has_everything(tmp_path: Path) -> None:
    saved = save(tmp_path).state
    found = final_snapshot.read(FolderStorage(tmp_path), "job", WANTED)
    assert found is not None
    assert saved.values is not None
    for vector, values in saved.values.vectors.items():
        assert torch.equal(found.values.vectors[vector], values)
    assert MOMENTUM in found.values.vectors
    assert found.values.share.placement == saved.values.share.placement
    assert (found.version, found.samples, found.checkpoint) == (17, 136, 6)
    assert found.delivered == {REPLICA: saved.deliveries.delivered[REPLICA]}
    assert restoring.delivered_of(found.previous[1]) == found.delivered


def test_what_a_newer_incarnation_has_saved_stays(tmp_path: Path) -> None:
    newer = a_shard()
    newer.state.incarnation = 5
    newer.state.count = 12
    assert GracefulShutdown(newer, a_saver(tmp_path)).save(6)

    assert not GracefulShutdown(a_shard(), a_saver(tmp_path)).save(6)

    found = final_snapshot.read(FolderStorage(tmp_path), "job", WANTED)
    assert found is not None
    assert found.version == 12
    newer.state.count = 13
    assert GracefulShutdown(newer, a_saver(tmp_path)).save(6)


@pytest.fixture(name="objects", params=["folder", "object store"])
def _objects(request: pytest.FixtureRequest) -> FlakyObjects | None:
    return FlakyObjects() if request.param == "object store" else None


def a_shutdown(folder: Path, objects: FlakyObjects | None, incarnation: int) -> GracefulShutdown:
    """Of one whose values are those of `a_shard`, on a node of its own with an object store."""
    shard = a_shard()
    shard.state.incarnation = incarnation
    storage = a_storage_at(folder, objects, incarnation)
    return GracefulShutdown(shard, replace(a_saver(folder), storage=storage))


def a_storage_at(folder: Path, objects: FlakyObjects | None, node: int = 1) -> Storage:
    """Where shards of a job save, as a process on this node reaches it."""
    return FolderStorage(folder) if objects is None else Storage(objects, folder / str(node))


def test_an_older_incarnation_saves_nothing_once_a_newer_one_has_joined(
    tmp_path: Path, objects: FlakyObjects | None
) -> None:
    zombie = a_shutdown(tmp_path, objects, 4)
    a_shutdown(tmp_path, objects, 5).begin(0)

    assert not zombie.save(6)
    zombie.begin(0)

    assert not zombie.save(6)
    assert final_snapshot.read(a_storage_at(tmp_path, objects, 6), "job", WANTED) is None
    assert a_shutdown(tmp_path, objects, 5).save(6)


def test_what_an_older_incarnation_saved_as_a_newer_one_joined_is_passed_over(
    tmp_path: Path, objects: FlakyObjects | None
) -> None:
    """It began before the newer one had joined, and saving takes long."""
    assert a_shutdown(tmp_path, objects, 4).save(6)
    a_shutdown(tmp_path, objects, 5).begin(0)

    assert final_snapshot.read(a_storage_at(tmp_path, objects), "job", WANTED) is None


def test_a_shard_that_joins_notes_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "saver", lambda _: a_saver(tmp_path))
    server._graceful_shutdown(Mock(), a_shard(), None)

    assert not a_shutdown(tmp_path, None, 3).save(6)


def test_what_was_saved_is_gone_on_from_again_after_a_death(
    tmp_path: Path, objects: FlakyObjects | None
) -> None:
    assert a_shutdown(tmp_path, objects, 4).save(6)
    for incarnation in (5, 6):
        found = final_snapshot.read(a_storage_at(tmp_path, objects), "job", WANTED)
        assert found is not None
        assert found.saved_by == 4
        a_shutdown(tmp_path, objects, incarnation).begin(found.saved_by)


@pytest.mark.parametrize(
    ("job_uid", "shards", "rule"),
    [("other", 2, "momentum"), ("job", 3, "momentum"), ("job", 2, "sgd")],
)
def test_what_is_not_of_this_job_as_it_is_now_is_passed_over(
    tmp_path: Path, job_uid: str, shards: int, rule: str
) -> None:
    save(tmp_path)
    wanted = Wanted(
        share=a_share(shards),
        makers={rule: downpour_shards.with_state(())},
        tables=restoring.TABLES,
    )
    assert final_snapshot.read(FolderStorage(tmp_path), job_uid, wanted) is None


def test_damage_is_named(tmp_path: Path) -> None:
    assert final_snapshot.read(FolderStorage(tmp_path), "job", WANTED) is None
    save(tmp_path)
    file = tmp_path / names.FINAL_SNAPSHOTS / names.part_file(1)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(Corrupt, match=r"part-00001\.safetensors"):
        final_snapshot.read(FolderStorage(tmp_path), "job", WANTED)
    file.with_suffix(".json").write_text("{}")
    with pytest.raises(Corrupt, match=r"part-00001\.json"):
        final_snapshot.read(FolderStorage(tmp_path), "job", WANTED)


def test_without_values_there_is_nothing_to_save(tmp_path: Path) -> None:
    shard = a_shard()
    shard.state.is_initialised = False
    assert not GracefulShutdown(shard, a_saver(tmp_path)).save(0)


def test_a_shard_serves_until_its_replicas_are_silent(tmp_path: Path) -> None:
    shard = a_shard()
    shard.admit(REPLICA)
    shutdown = GracefulShutdown(shard, a_saver(tmp_path))
    assert not shutdown.is_due(100.0)
    shutdown.asked = 103.0
    assert not shutdown.is_due(103.0 + QUIET_SECONDS - 0.1)
    assert shutdown.is_due(103.0 + QUIET_SECONDS)
    shutdown.asked = 100.0 + LINGER_SECONDS
    assert shutdown.is_due(100.0 + LINGER_SECONDS), "others cannot be waited for"


def test_a_shard_without_replicas_need_not_wait(tmp_path: Path) -> None:
    shard = a_shard()
    shard.admit(REPLICA)
    shard.fence(REPLICA)
    assert GracefulShutdown(shard, a_saver(tmp_path)).is_due(100.0)


def a_checkpoint(number: int, version: int, shards: int = 2) -> Manifest:
    layout = a_layout()
    entries = [
        HolderEntry(
            index=index,
            file=FileEntry(name=names.part_file(index), bytes=1, hash="0"),
            version=version,
        )
        for index in range(shards)
    ]
    return a_manifest(entries, layout=layout, number=number)


@pytest.mark.parametrize(
    ("checkpoint", "is_newer"),
    [
        (None, True),
        (a_checkpoint(6, 17), True),
        (a_checkpoint(6, 12), True),
        (a_checkpoint(7, 12), False),
        (a_checkpoint(6, 18), False),
        (a_checkpoint(6, 12, shards=3), False),
    ],
    ids=["none", "the same", "older", "of a later incarnation", "of a later version", "resharded"],
)
def test_what_was_saved_at_the_stop_counts_until_a_later_checkpoint(
    tmp_path: Path, checkpoint: Manifest | None, *, is_newer: bool
) -> None:
    save(tmp_path, checkpoint=6)
    found = final_snapshot.read(FolderStorage(tmp_path), "job", WANTED)
    assert found is not None
    assert final_snapshot.is_newer(found, 1, checkpoint) is is_newer


def test_in_an_object_store_the_next_incarnation_needs_nothing_of_the_folder(
    tmp_path: Path,
) -> None:
    objects = FlakyObjects()
    saver = replace(a_saver(tmp_path), storage=Storage(objects, tmp_path / "first"))
    for checkpoint in (5, 6):
        assert GracefulShutdown(a_shard(), saver).save(checkpoint)
    found = final_snapshot.read(Storage(objects, tmp_path / "second"), "job", WANTED)
    assert found is not None
    assert (found.version, found.checkpoint) == (17, 6)
    assert len(objects.there) == 2, "what was saved before is deleted"


def test_what_could_not_be_uploaded_was_not_saved(tmp_path: Path) -> None:
    for place in (0, 1):
        objects = FlakyObjects(faults=[None] * place + [Fault.REFUSED])
        saver = replace(a_saver(tmp_path), storage=Storage(objects, tmp_path))
        assert not GracefulShutdown(a_shard(), saver).save(6)
        assert final_snapshot.read(a_storage_at(tmp_path, objects), "job", WANTED) is None
