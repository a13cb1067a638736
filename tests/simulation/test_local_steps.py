"""Local steps, with a quorum and in fragments, and faults drawn from a seed."""

import pytest

from builders.at_night import seeds
from disttrain.parameter_server import quorum
from disttrain.parameter_server.merging import Merging
from disttrain.replica.fragment_schedule import FragmentSchedule, Turn
from disttrain.state.fragments import Fragment
from simulation import chaos, truth
from simulation.jobs import Kind

BLOCK = 10
KINDS = [Kind.LOCAL_STEPS, Kind.QUORUM, Kind.FRAGMENTS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", seeds(33, before_a_push=1, before_landing=1))
def test_every_role_may_die_or_sleep_at_any_time(kind: Kind, block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        run = chaos.run(seed, kind=kind, target=seed % 3 == 0)
        assert truth.violations(run) == [], f"seed {seed}"


def found(kind: Kind, word: str) -> bool:
    return truth.is_found(word, range(30), kind=kind, shard_faults=kind is Kind.QUORUM, faults=4)


def test_equal_weights_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "weights", lambda work: dict.fromkeys(work, 1 / len(work)))
    assert found(Kind.QUORUM, "the model is")


def test_a_shard_that_forgets_what_it_had_gathered_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restore = Merging.restore

    def forget(merging: Merging) -> None:
        merging._state.gathered.clear()
        restore(merging)

    monkeypatch.setattr(Merging, "restore", forget)
    assert found(Kind.QUORUM, "the model is")


def test_samples_that_count_with_their_first_fragment_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push = FragmentSchedule.push

    def early(schedule: FragmentSchedule, fragment: Fragment) -> Turn:
        turn, first = push(schedule, fragment), fragment.number == 0
        counted = turn.samples if first else 0
        return turn._replace(counted=counted, position=schedule._now.position)

    monkeypatch.setattr(FragmentSchedule, "push", early)
    assert found(Kind.FRAGMENTS, "lacks")
