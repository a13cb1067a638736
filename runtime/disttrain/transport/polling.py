"""Waiting for descriptors."""

import math
import select
import time
from collections.abc import Iterable

Interest = tuple[int, int]
"""A descriptor, and the events of `poll` to wait for at it."""

_LONGEST_SECONDS = 3600.0
"""Of one wait; longer ones consist of several."""


def wait(interests: Iterable[Interest], timeout: float) -> set[int]:
    """The descriptors at which something happened; none after `timeout` seconds."""
    poll = select.poll()
    for descriptor, events in interests:
        poll.register(descriptor, events)
    seconds = min(max(0.0, timeout), _LONGEST_SECONDS)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1000))}


def deadline(timeout: float) -> float:
    """The monotonic time at which a timeout from now ends."""
    return time.monotonic() + timeout


def remaining(end: float) -> float:
    """Seconds until a deadline; 0 if it has passed."""
    return max(0.0, end - time.monotonic())
