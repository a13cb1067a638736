"""Jobs whose replicas have two processes, with faults drawn from a seed."""

from typing import Any

import pytest

from builders.at_night import seeds
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.journal.state import State
from simulation import chaos, truth
from simulation.chaos import Chaos, Plan

OF_TWO = ("spec.replicas.partitions=2", "spec.parameterServer.shards=2")
BLOCK = 20


def faulty(seed: int) -> dict[str, Any]:
    return {"target": seed % 3 == 0, "more": OF_TWO, "faults": 2 + seed % 5}


@pytest.mark.parametrize("block", seeds(20, before_a_push=1, before_landing=3))
def test_processes_of_a_group_may_die_and_sleep_at_any_time(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        run = chaos.run(seed, **faulty(seed))
        assert truth.violations(run) == [], f"seed {seed}"


def _is_forming(state: State) -> bool:
    """The first group has just become whole, and its processes have not met."""
    return 0 in state.replicas and state.replicas[0].is_whole


def _killed_while_a_group_forms(after_seconds: float) -> Chaos:
    run = Chaos(Plan(seed=3, is_quiet=True, more=OF_TWO))
    run.at(_is_forming, lambda incarnation: run.time.after(after_seconds, incarnation.kill))
    return run.run()


def test_a_group_that_forms_as_the_coordinator_dies_forms_anew() -> None:
    incarnations = []
    for milliseconds in range(0, 40, 4):
        run = _killed_while_a_group_forms(milliseconds / 1000)
        assert truth.violations(run) == [], f"after {milliseconds} ms"
        incarnations += [group.incarnation for group in run.coordinator.state.replicas.values()]
    assert set(incarnations) == {1, 2}, "some had met already, or not begun to"


def test_a_group_that_is_formed_outlives_the_coordinator() -> None:
    run = Chaos(Plan(seed=3, is_quiet=True, more=OF_TWO))
    run.at(lambda state: state.samples > 0, lambda incarnation: incarnation.die())
    run.run()
    assert truth.violations(run) == []
    assert {one.incarnation for one in run.coordinator.state.replicas.values()} == {1}


def _found(monkeypatch: pytest.MonkeyPatch, word: str) -> bool:
    monkeypatch.setattr(chaos, "LONGEST", 120.0)
    return any(truth.is_found(word, [seed], **faulty(seed)) for seed in range(40))


def test_a_place_that_is_taken_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "has_room_for", lambda group, *_: group.live)
    assert _found(monkeypatch, "joined twice")
