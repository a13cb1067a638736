"""Two coordinators at once: fenced, the promises hold in every run; else the simulator finds it."""

from dataclasses import replace

import pytest

from simulation import truth
from simulation.chaos import Chaos, Plan
from simulation.sim_takeover import TAKEOVERS, Takeover

SEEDS = range(60)


@pytest.mark.parametrize("takeover", TAKEOVERS, ids=lambda each: f"at {each.at:g} s")
def test_promises_hold_while_members_reach_an_older_coordinator(takeover: Takeover) -> None:
    replaced = 0
    for seed in SEEDS:
        run = Chaos(Plan(seed=seed, shard_faults=True, takeover=takeover)).run()
        assert truth.violations(run) == [], f"seed {seed}"
        replaced += run.coordinator.old is not None
    assert replaced > len(SEEDS) // 2


def test_without_fencing_an_older_coordinator_breaks_them() -> None:
    takeover = replace(TAKEOVERS[1], is_fenced=False)
    runs = [Chaos(Plan(seed=seed, takeover=takeover)) for seed in SEEDS]
    assert any(truth.violations(run.run()) for run in runs)
