"""How far a job is."""

import pytest

from builders.machines import BASE, Machine
from disttrain.coordinator import progress
from disttrain.coordinator.state import Phase


@pytest.mark.parametrize(
    ("phase", "fraction", "remaining"),
    [(Phase.COMPLETE, 1.0, 0.0), (Phase.STOPPED, 0.0, None), (Phase.FAILED, 0.0, None)],
)
def test_only_a_complete_job_has_come_to_its_end(
    phase: Phase, fraction: float, remaining: float | None
) -> None:
    machine = Machine()
    machine.running()
    machine.state.phase = phase

    found = progress.estimate(machine.state, BASE, machine.now, 10.0)

    assert (found.fraction, found.remaining_seconds) == (fraction, remaining)
