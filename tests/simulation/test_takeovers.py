"""Two coordinators at once: fenced, the promises hold in every run; else the simulator finds it."""

import pytest

from disttrain.coordinator.journal.journal import Journal
from disttrain.coordinator.process.service import Service
from disttrain.coordinator.protocol.control import ControlConnection
from simulation import truth
from simulation.chaos import Chaos, Plan, Takeover
from simulation.jobs import Kind

TAKEOVERS = (
    Takeover(at=1.0, reach_seconds=3.0),
    Takeover(at=2.5, reach_seconds=12.0),
    Takeover(at=6.0, reach_seconds=8.0),
)
SEEDS = range(14)


@pytest.mark.parametrize("takeover", TAKEOVERS, ids=lambda each: f"at {each.at:g} s")
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [(Kind.DOWNPOUR, SEEDS), (Kind.BATCHES, SEEDS[:3]), (Kind.AFTER_DOWNPOUR, SEEDS[:3])],
)
def test_promises_hold_while_members_reach_an_older_coordinator(
    kind: Kind, seeds: range, takeover: Takeover
) -> None:
    replaced = 0
    for seed in seeds:
        run = Chaos(Plan(seed=seed, kind=kind, takeover=takeover)).run()
        assert truth.violations(run) == [], f"seed {seed}"
        replaced += run.replaced > 0
    assert replaced > len(seeds) // 2


def test_without_fencing_an_older_coordinator_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "require_owner", lambda _: True)
    monkeypatch.setattr(Service, "_require_newest", lambda *_: None)
    monkeypatch.setattr(ControlConnection, "_require_newest", lambda *_: None)
    assert any(_breaks(seed) for seed in SEEDS)


def _breaks(seed: int) -> bool:
    run = Chaos(Plan(seed=seed, shard_faults=False, takeover=TAKEOVERS[1])).run()
    return bool(truth.violations(run))
