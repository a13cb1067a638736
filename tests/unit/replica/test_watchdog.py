"""The watchdog notices a call of the task's code that does not return, in whatever thread."""

import queue
import subprocess
import sys
import threading
import time

from disttrain.replica.watchdog import Watchdog
from disttrain.task import user_code
from disttrain.task.user_code import Call


def spare(_seconds: float) -> None:
    """A last resort that does not end the tests, however long they are kept waiting."""


def test_a_call_that_does_not_return_is_told_with_its_thread() -> None:
    told: queue.SimpleQueue[tuple[Call, float]] = queue.SimpleQueue()
    returns = threading.Event()

    def hang() -> None:
        with user_code.noted("Digits.loss()"):
            returns.wait(20)

    thread = threading.Thread(target=hang)
    with Watchdog(0.05, lambda call, seconds: told.put((call, seconds)), last_resort=spare):
        thread.start()
        call, seconds = told.get(timeout=20)
    returns.set()
    thread.join(20)

    assert (call.name, call.thread) == ("Digits.loss()", thread.ident)
    assert seconds > 0.05


def test_a_call_of_a_process_that_was_stopped_has_its_time_again() -> None:
    told: queue.SimpleQueue[float] = queue.SimpleQueue()
    looks: queue.SimpleQueue[float] = queue.SimpleQueue()
    stopped_seconds = 0.0

    def clock() -> float:
        now = time.monotonic() + stopped_seconds
        looks.put(now)
        return now

    watchdog = Watchdog(1.0, lambda *_: told.put(time.monotonic()), clock, spare)
    with user_code.noted("Digits.loss()"), watchdog:
        looks.get(timeout=20)
        went_on = time.monotonic()
        stopped_seconds = 1000.0
        at = told.get(timeout=20)

    assert at - went_on > 1.0


def test_many_short_calls_are_never_overdue() -> None:
    """On a machine that stands still for a moment one call may be, by its own time alone."""
    told: list[float] = []
    longest = 0.0
    pause = threading.Event()
    end = time.monotonic() + 1.0
    with Watchdog(0.3, lambda _, seconds: told.append(seconds), last_resort=spare):
        while (began := time.monotonic()) < end:
            with user_code.noted("Digits.loss()"):
                pause.wait(0.001)
            longest = max(longest, time.monotonic() - began)
    assert max(told, default=0.0) <= longest


def test_without_a_limit_nothing_watches() -> None:
    before = set(threading.enumerate())
    with Watchdog(None):
        assert set(threading.enumerate()) <= before


def test_the_last_resort_is_told_from_the_beginning_on() -> None:
    """A call may hang before the first look."""
    told: queue.SimpleQueue[float] = queue.SimpleQueue()
    with Watchdog(0.5, last_resort=told.put):
        at_once = told.get_nowait()
        assert [at_once, told.get(timeout=20), told.get(timeout=20)] == [5.5] * 3


FORKING = """
import os, sys
from disttrain.replica.watchdog import Watchdog
with Watchdog(100.0):
    child = os.fork()
    if child == 0:
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_of_a_watched_process_can_end() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "7\n"
