"""Batch methods, also with a warm start, and faults drawn from a seed: the bits of a quiet run."""

import pytest

from simulation import chaos, truth
from simulation.jobs import Kind

BLOCK = 10
BLOCKS = 11
BEFORE_A_PUSH = 1
"""Blocks; of the others each landing sees all."""


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        pytest.param(kind, block, marks=pytest.mark.landing if block >= BEFORE_A_PUSH else ())
        for kind in Kind
        for block in range(BLOCKS)
        if kind is not Kind.DOWNPOUR
    ],
)
def test_every_role_may_die_or_sleep_at_any_time(kind: Kind, block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        run = chaos.run(seed, kind=kind, faults=4)
        assert truth.violations(run) == [], f"seed {seed}"
