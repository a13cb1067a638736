"""Killed after any line of its journal, the coordinator knows exactly what it knew then."""

import pytest

from disttrain.coordinator.decisions.machine import Decision
from disttrain.coordinator.journal import entries, state
from disttrain.coordinator.journal.state import State
from simulation.chaos import Chaos, Plan
from simulation.sim_coordinator import SimCoordinator


@pytest.mark.parametrize("seed", [48, 99, 100])
def test_every_prefix_of_the_journal_gives_the_state_of_its_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[bytes] = []
    settle = SimCoordinator._settle

    def noting(self: SimCoordinator, decision: Decision) -> None:
        settle(self, Decision(decided=decision.decided))
        if decision.decided:
            states.append(_content(self.state))
        settle(self, Decision(effects=decision.effects))

    monkeypatch.setattr(SimCoordinator, "_settle", noting)
    chaos = Chaos(Plan(seed=seed, shard_faults=True))
    chaos.coordinator.die_at = None
    monkeypatch.setattr(chaos, "_kill_coordinator", lambda: None)
    chaos.run()
    if chaos.coordinator.restarts:
        pytest.skip("the coordinator died between an effect and its line")
    lines = [entries.to_json(decided) for decided in chaos.coordinator.journal]
    assert len(lines) == len(states) > 40
    replayed = State()
    for line, then in zip(lines, states, strict=True):
        entries.fold(replayed, entries.from_json(line))
        assert _content(replayed) == then


def _content(found: State) -> bytes:
    # When a ledger was cut is for the ledger alone; it is not journaled.
    found.ledger_time = None
    return state.to_json(found)
