"""Jobs of a minute with faults drawn from a seed; in every one the promises hold exactly."""

import pytest

from builders.at_night import seeds
from simulation import chaos, truth
from simulation.jobs import Kind

BLOCK = 20


@pytest.mark.parametrize("block", seeds(100, before_a_push=4, before_landing=8))
def test_every_role_may_die_and_replicas_may_sleep_at_any_time(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        run = chaos.run(seed, shard_faults=True, target=seed % 3 == 0)
        assert truth.violations(run) == [], f"seed {seed}"


@pytest.mark.parametrize("kind", [Kind.DOWNPOUR, Kind.AFTER_DOWNPOUR])
def test_a_seed_gives_the_same_run_again(kind: Kind) -> None:
    first, second = (chaos.run(7, kind=kind) for _ in range(2))
    assert first.time.now == second.time.now
    assert first.told == second.told
