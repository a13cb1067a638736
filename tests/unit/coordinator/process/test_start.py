"""What the coordinator begins with."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from builders.jobs import a_job
from disttrain.coordinator.errors import ManifestChanged
from disttrain.coordinator.journal import state
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.process import start


@pytest.mark.parametrize("seed", [3, 4])
def test_a_checkpoint_is_gone_on_with_by_its_own_seed_alone(seed: int) -> None:
    ledger = state.to_json(State(data=DataLedger(seed=3, samples=40, portion_size=8)))
    store = Mock(ledger=Mock(return_value=ledger), next_number=Mock(return_value=2))
    config = Mock(
        resume_from=Path("checkpoints/00000001"), job=a_job(f"spec.seed={seed}"), job_uid="uid"
    )

    if seed == 3:
        assert start.first_state(config, store).state.data.samples == 40
        return
    with pytest.raises(ManifestChanged, match=r"spec\.seed was 3 and is 4"):
        start.first_state(config, store)
