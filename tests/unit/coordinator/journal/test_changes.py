"""What another manifest at a resume makes impossible."""

import pytest

from builders.jobs import a_job
from disttrain.coordinator.journal import changes
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.leases.data_ledger import DataLedger


@pytest.mark.parametrize(
    ("samples", "seed", "refused"), [(40, 3, False), (40, 4, True), (0, 4, False)]
)
def test_data_that_were_cut_by_a_seed_are_not_cut_by_another(
    *, samples: int, seed: int, refused: bool
) -> None:
    state = State(data=DataLedger(seed=3, samples=samples))

    why = changes.impossible(state, a_job(f"spec.seed={seed}").spec)

    assert (why is not None) is refused
    if why is not None:
        assert "spec.seed was 3 and is 4" in why
        assert "Set 3, or begin a new run" in why
