"""A thousand small jobs with faults drawn from a seed: each ends with the bits of a quiet run."""

import pytest

from simulation.sandblaster import chaos

BLOCK = 100


@pytest.mark.parametrize("block", range(11))
def test_every_process_may_die_or_sleep_at_any_time(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        assert chaos.run(seed).violations == [], f"seed {seed}"
