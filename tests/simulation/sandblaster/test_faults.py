"""Batch methods, also with a warm start, and faults drawn from a seed: the bits of a quiet run."""

import pytest

from builders.at_night import seeds
from simulation import chaos, truth
from simulation.jobs import Kind

BLOCK = 10


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.is_a_batch_method])
@pytest.mark.parametrize("block", seeds(11, before_a_push=1, before_landing=1))
def test_every_role_may_die_or_sleep_at_any_time(kind: Kind, block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        run = chaos.run(seed, kind=kind, faults=4)
        assert truth.violations(run) == [], f"seed {seed}"
