"""Calls beside a loop."""

import threading

import pytest

from disttrain.launch.background import Background


def test_calls_are_run_one_after_the_other_beside_the_caller() -> None:
    background = Background("calls")
    told: list[str] = []
    may_go_on = threading.Event()

    def tell(word: str) -> None:
        assert may_go_on.wait(60)
        told.append(word)

    first = background.submit(lambda: tell("first"))
    second = background.submit(lambda: tell("second"))
    assert not first.done()

    may_go_on.set()
    second.result(60)

    assert told == ["first", "second"]


def test_what_a_call_raises_is_raised_by_its_future_and_the_next_one_is_run() -> None:
    background = Background("calls")
    refused = background.submit(lambda: 1 // 0)
    following = background.submit(lambda: 7)

    with pytest.raises(ZeroDivisionError):
        refused.result(60)
    assert following.result(60) == 7


def test_the_end_of_the_process_does_not_wait_for_a_call() -> None:
    thread = Background("calls").submit(threading.current_thread).result(60)
    assert thread.daemon
    assert thread is not threading.current_thread()
