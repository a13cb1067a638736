"""Hundreds of jobs with faults drawn from a seed; in every one the promises hold exactly."""

import pytest

from simulation import chaos, truth

BLOCK = 50


@pytest.mark.parametrize("block", range(14))
def test_replicas_and_the_coordinator_may_die_or_sleep_at_any_time(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        run = chaos.run(seed)
        assert truth.violations(run) == [], f"seed {seed}"


@pytest.mark.parametrize("block", range(7))
def test_shards_may_die_too(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        run = chaos.run(seed, shard_faults=True)
        assert truth.violations(run) == [], f"seed {seed}"
