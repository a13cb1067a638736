"""A thousand jobs with faults drawn from a seed; in every one the promises hold exactly."""

import pytest

from simulation import chaos, truth

BLOCK = 50


@pytest.mark.parametrize("block", range(21))
def test_every_role_may_die_and_replicas_may_sleep_at_any_time(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        run = chaos.run(seed, shard_faults=True, target=seed % 3 == 0)
        assert truth.violations(run) == [], f"seed {seed}"
