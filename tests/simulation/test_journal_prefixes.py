"""Killed after any line of its journal, the coordinator knows exactly what it knew then."""

from typing import Any

import pytest

from disttrain.coordinator.journal import entries, state
from disttrain.coordinator.journal.state import State
from simulation.chaos import Chaos, Plan
from simulation.jobs import Kind
from simulation.sim_coordinator import SimCoordinator
from simulation.world import JOB_UID


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (48, Kind.DOWNPOUR),
        (99, Kind.DOWNPOUR),
        (100, Kind.DOWNPOUR),
        (1, Kind.BATCHES),
        (2, Kind.AFTER_DOWNPOUR),
    ],
)
def test_every_prefix_of_the_journal_gives_the_state_of_its_time(
    seed: int, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[bytes] = []
    append = SimCoordinator._append

    def noting(self: SimCoordinator, *arguments: Any) -> None:
        append(self, *arguments)
        if arguments[-1]:
            states.append(_content(self.state))

    monkeypatch.setattr(SimCoordinator, "_append", noting)
    chaos = Chaos(Plan(seed=seed, kind=kind))
    monkeypatch.setattr(chaos, "_kill_coordinator", lambda: None)
    chaos.world.commit_crash = 0.0
    chaos.run()
    assert chaos.coordinator.incarnations == 1
    lines = [entries.to_json(decided) for decided in chaos.coordinator.decided]
    assert len(lines) == len(states) > 40
    replayed = State(job_uid=JOB_UID)
    for line, then in zip(lines, states, strict=True):
        entries.fold(replayed, entries.from_json(line))
        assert _content(replayed) == then


def _content(found: State) -> bytes:
    # When a ledger was cut is for the ledger alone; it is not journaled.
    found.ledger_time = None
    return state.to_json(found)
