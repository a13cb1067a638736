"""What the coordinator begins with."""

import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from builders.jobs import a_job
from disttrain.coordinator.errors import JournalDamaged, ManifestChanged
from disttrain.coordinator.journal import state
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.process import server
from disttrain.coordinator.process.server import steady_clock
from disttrain.job.location import Location


@pytest.mark.parametrize("seed", [3, 4])
def test_a_checkpoint_is_gone_on_with_by_its_own_seed_alone(seed: int) -> None:
    ledger = state.to_json(State(data=DataLedger(seed=3, samples=40, portion_size=8)))
    store = Mock(ledger=Mock(return_value=ledger), next_number=Mock(return_value=2))
    config = Mock(
        resume_from=Path("checkpoints/00000001"), job=a_job(f"spec.seed={seed}"), job_uid="uid"
    )

    if seed == 3:
        found, _ = server.first_state(config, store)
        assert found.data.samples == 40
        return
    with pytest.raises(ManifestChanged, match=r"spec\.seed was 3 and is 4"):
        server.first_state(config, store)


def test_a_job_with_checkpoints_and_without_a_journal_does_not_begin_anew(tmp_path: Path) -> None:
    store = Mock(next_number=Mock(return_value=8))
    config = Mock(
        resume_from=None, job=a_job(), job_uid="uid", checkpoints=Location(tmp_path / "checkpoints")
    )
    another, own = (Mock(manifest=Mock(number=7)) for _ in range(2))
    another.manifest.job.uid, own.manifest.job.uid = "another", "uid"

    store.list.return_value = (another,)
    _, origin = server.first_state(config, store)
    assert origin is server.Origin.NEW
    store.list.return_value = (another, own)
    with pytest.raises(JournalDamaged, match="has checkpoint 7 of this job and not its journal"):
        server.first_state(config, store)


def test_a_clock_that_is_behind_does_not_go_back_behind_what_was_decided() -> None:
    an_hour_ahead = time.time() + 3600.0
    found = State(began=an_hour_ahead - 60.0, checkpoint_tried=an_hour_ahead)

    clock = steady_clock(found.latest_time)

    assert an_hour_ahead <= clock() < an_hour_ahead + 600.0
    assert steady_clock(State().latest_time)() < an_hour_ahead
