"""Calls of the task's code are known while they run, by their names and threads."""

import inspect
import threading

import pytest

from disttrain.task import user_code
from disttrain.task.user_code import Call


def test_a_call_is_known_until_it_returns() -> None:
    with user_code.noted("Digits.loss()"):
        (call,) = user_code.calls_under_way()
    assert (call.name, call.thread) == ("Digits.loss()", threading.get_ident())
    assert user_code.calls_under_way() == ()


def test_a_call_that_raises_is_over_too() -> None:
    with pytest.raises(KeyError), user_code.noted("Digits.loss()"):
        raise KeyError
    assert user_code.calls_under_way() == ()


def test_the_innermost_call_of_a_thread_counts() -> None:
    with user_code.noted("reading a batch"):
        with user_code.noted("Photographs.__getitem__(3)"):
            assert [call.name for call in user_code.calls_under_way()] == [
                "Photographs.__getitem__(3)"
            ]
        assert [call.name for call in user_code.calls_under_way()] == ["reading a batch"]


def test_the_users_code_is_noted_wherever_it_is_run() -> None:
    samples = [7]
    with user_code.running(lambda: f"Photographs.__getitem__({samples[-1]})"):
        samples.append(8)
        (call,) = user_code.calls_under_way()
        assert call.name == "Photographs.__getitem__(8)"


def test_the_longest_call_is_overdue_after_the_limit() -> None:
    young, old = Call("young", 1, since=15.0), Call("old", 2, since=10.0)

    assert user_code.overdue([young, old], now=20.0, limit_seconds=10.0) is None
    assert user_code.overdue([young, old], now=20.1, limit_seconds=10.0) == old
    assert user_code.overdue([], now=20.1, limit_seconds=10.0) is None


def test_a_place_is_the_users_innermost_line_first() -> None:
    def read() -> str:
        frame = inspect.currentframe()
        assert frame is not None
        return user_code.place_of(frame)

    first, second, *_ = read().split(" < ")

    assert first.startswith(f"{__file__}:")
    assert first.endswith(" in read")
    assert second.endswith(" in test_a_place_is_the_users_innermost_line_first")
