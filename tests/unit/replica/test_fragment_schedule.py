"""The schedule of fragments: a sample counts once, and not before all fragments hold its step."""

import random

import pytest

from disttrain.coordinator.protocol.fields import START, Position
from disttrain.replica.fragment_schedule import FragmentSchedule
from disttrain.state.fragments import Fragment


def at(steps: int) -> Position:
    return Position(lease=1, offset=8 * steps)


def test_fragments_are_pushed_in_turn_and_count_when_the_last_of_them_is() -> None:
    turns, found = FragmentSchedule(3), []
    for step in range(1, 7):
        turns.step(8, at(step))
        found.append(turns.push(turns.next))
    assert [each.fragment.number for each in found] == [0, 1, 2, 0, 1, 2]
    assert [each.steps for each in found] == [1, 2, 3, 3, 3, 3]
    assert [each.samples for each in found] == [8, 16, 24, 24, 24, 24]
    assert [each.counted for each in found] == [0, 0, 8, 8, 8, 8]
    assert [each.position for each in found] == [START, START, at(1), at(2), at(3), at(4)]
    assert turns.uncounted_samples == 16


def test_one_fragment_counts_at_once() -> None:
    turns = FragmentSchedule(1)
    turns.step(8, at(1))
    turns.step(5, at(2))
    assert turns.push(turns.next) == (Fragment(0, 1), 2, 13, 13, at(2))
    assert turns.unfinished == []


def test_what_is_unfinished_comes_in_its_turn_and_counts_all() -> None:
    turns = FragmentSchedule(3)
    turns.step(8, at(1))
    turns.push(turns.next)
    turns.step(8, at(2))
    turns.push(turns.next)
    assert [each.number for each in turns.unfinished] == [2, 0]
    counted = [turns.push(each).counted for each in turns.unfinished]
    assert counted == [8, 8]
    assert turns.unfinished == []


def test_a_position_passed_with_no_step_is_reached_by_what_follows_all_steps() -> None:
    turns = FragmentSchedule(2)
    turns.step(8, at(1))
    turns.push(turns.next)
    turns.passed(at(2))
    assert turns.push(turns.next).position == at(2)


@pytest.mark.parametrize("seed", range(5))
def test_each_step_counts_once_and_after_every_fragment(seed: int) -> None:
    chance, count = random.Random(seed), 1 + seed
    turns, step, counted, forgotten = FragmentSchedule(count), 0, 0, 0
    held = [0] * count
    """Steps, which are of one sample, that each fragment holds."""
    for _ in range(500):
        match chance.choices(["step", "push", "flush", "forget"], [20, 6, 1, 1])[0]:
            case "step":
                step += 1
                turns.step(1, at(step))
                continue
            case "push":
                fragments = [turns.next]
            case "flush":
                fragments = turns.unfinished
            case _:
                forgotten += turns.uncounted_samples
                turns.forget()
                held, fragments = [step] * count, []
        for fragment in fragments:
            turn = turns.push(fragment)
            assert turn.steps == turn.samples == step - held[fragment.number]
            held[fragment.number] = step
            counted += turn.counted
            assert counted + forgotten == min(held)
            assert counted + forgotten + turns.uncounted_samples == step
