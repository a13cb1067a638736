"""A thousand small jobs with faults drawn from a seed: each ends with the bits of a quiet run."""

import pytest

from simulation.sandblaster import chaos
from simulation.sandblaster.problem import Kind

BLOCK = 100


@pytest.mark.parametrize("block", range(11))
def test_every_process_may_die_or_sleep_at_any_time(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        assert chaos.run(seed).violations == [], f"seed {seed}"


@pytest.mark.parametrize("block", range(4))
def test_so_it_is_with_batches_that_are_smaller_than_the_data(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        assert chaos.run(seed, Kind.BATCHES).violations == [], f"seed {seed}"
