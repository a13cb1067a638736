import threading

import pytest

from disttrain.coordinator.protocol.messages import GroupLease
from disttrain.replica import held_groups
from disttrain.replica.held_groups import HeldGroups


def a_group(attempt: int, evaluation: int = 1) -> GroupLease:
    return GroupLease(
        attempt=attempt, group=attempt, evaluation=evaluation, portions=(0, 2), shards=(1,)
    )


def test_there_is_room_for_one_group_that_is_computed_and_the_next() -> None:
    held = HeldGroups()
    assert held.has_room
    first = held.take(a_group(1))
    held.take(a_group(2))

    assert not held.has_room
    assert first is not None
    held.computed(first)

    assert held.has_room
    assert held.attempts == (1, 2)


def test_an_attempt_that_is_said_again_is_taken_once() -> None:
    held = HeldGroups()
    number = held.take(a_group(1))

    assert held.take(a_group(1)) is None
    assert number is not None
    held.done(number)
    assert held.attempts == ()
    assert held.get(number) is None


def test_an_attempt_that_was_dropped_is_taken_under_another_number() -> None:
    held = HeldGroups()
    first, newer = held.take(a_group(1)), held.take(a_group(2, evaluation=2))
    held.drop(evaluation=1)

    second = held.take(a_group(1))

    assert first is not None
    assert newer is not None
    assert held.get(first) is None
    assert held.get(newer) is not None
    assert second not in {None, first, newer}


def test_a_wait_for_room_ends_when_a_group_is_computed() -> None:
    held = HeldGroups()
    first = held.take(a_group(1))
    held.take(a_group(2))
    assert first is not None
    held.wait_for_room(0.001)
    assert not held.has_room

    waiting = threading.Thread(target=held.wait_for_room, args=(3600.0,), daemon=True)
    waiting.start()
    held.computed(first)
    waiting.join(10)

    assert not waiting.is_alive()


def test_after_an_evaluation_there_is_room_at_once_unless_more_of_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the coordinator does not know that it is over, and would give it again and again."""
    monkeypatch.setattr(held_groups, "_PAUSE_SECONDS", 1.0)
    held = HeldGroups()
    held.take(a_group(1))
    held.take(a_group(2))
    held.drop(evaluation=1)
    held.drop(evaluation=1)
    assert held.has_room

    held.take(a_group(3))
    held.drop(evaluation=1)
    assert not held.has_room
    held.wait_for_room(3600.0)
    assert held.has_room
