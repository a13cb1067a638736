"""With which checkpoint a shard begins, and to which it returns."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from builders import batch_shards, placements
from builders.batch_shards import CHUNK_BYTES, ELEMENTS, a_placement
from builders.jobs import a_batch_job
from disttrain.checkpoint import names
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.job import location
from disttrain.job.names import Role
from disttrain.launch.config import LaunchConfig
from disttrain.parameter_server import recovery
from disttrain.state.share import Share
from disttrain.transport.config import TransportKind

SHARE = Share(a_placement(placements.PARAMETERS), 0, CHUNK_BYTES)


@pytest.fixture
def config(tmp_path: Path) -> LaunchConfig:
    """Of an incarnation that began with the first of two checkpoints."""
    job = a_batch_job("spec.parameterServer.shards=1")
    folder = location.of(job, "job", tmp_path, "shard-0").folder
    shard = batch_shards.a_shard()
    batch_shards.one_iteration([shard])
    first = batch_shards.commit(folder, [shard], 1)
    batch_shards.commit(folder, [shard], 2)
    return LaunchConfig(
        job=job,
        job_uid="job",
        role=Role.SHARD,
        index=0,
        run_folder=tmp_path,
        task_folder=tmp_path,
        coordinator_address="ipc:///nowhere",
        transport=TransportKind.TCP,
        threads=1,
        resume_from=first.path,
    )


def test_a_shard_returns_although_the_checkpoint_that_it_began_with_is_gone(
    config: LaunchConfig,
) -> None:
    assert config.resume_from is not None
    shutil.rmtree(config.resume_from)

    assert recovery.reload(config, None, 2, SHARE).checkpoint == 2


def test_it_returns_to_no_other_checkpoint_than_the_one_that_was_named(
    config: LaunchConfig,
) -> None:
    assert recovery.reload(config, None, 1, SHARE).checkpoint == 1
    with pytest.raises(NoCheckpoint, match="there is no checkpoint 3"):
        recovery.reload(config, None, 3, SHARE)


def test_who_goes_on_from_a_stop_tells_of_a_damaged_checkpoint_after_it(
    config: LaunchConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = recovery.reload(config, None, 2, SHARE)
    monkeypatch.setattr(recovery, "_final_snapshot", lambda *_: saved)
    (config.checkpoints.folder / names.folder(3)).mkdir()

    layout = placements.of_lengths({placements.PARAMETERS: ELEMENTS})
    found = recovery.restore(replace(config, resume_from=None), SHARE, layout)

    assert found is not None
    assert found.values is saved.values
    assert found.damaged == (3,)
