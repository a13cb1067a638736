"""Whole jobs with a batch method through the coordinator's machine: the bits of a serial run."""

import pytest

from disttrain.coordinator.journal.state import Phase, StopReason
from simulation.batch_job import runs

BLOCK = 10


def test_an_undisturbed_job_has_the_bits_of_a_serial_run() -> None:
    world = runs.run(1, is_quiet=True)

    assert world.phase is Phase.COMPLETE
    assert world.coordinator is not None
    assert world.coordinator.state.reason == StopReason.CONVERGED
    assert runs.final(world) == runs.truth()


@pytest.mark.parametrize("block", range(10))
def test_every_process_may_die_or_sleep_at_any_time(block: int) -> None:
    truth = runs.truth()
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        world = runs.run(seed)
        assert world.phase is Phase.COMPLETE, f"seed {seed}"
        assert runs.final(world) == truth, f"seed {seed}"
