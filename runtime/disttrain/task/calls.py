"""Which calls of the task's code are running in this process, and since when.

Noted by whoever calls it; looked at by who wants to know whether it still returns.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

What = str | Callable[[], str]
"""Names a call: "Digits.loss()"; a function where the name is costly and rarely wanted."""


class Call(NamedTuple):
    """One that has not returned."""

    what: What
    thread: int
    since: float
    """As `time.monotonic` says."""

    @property
    def name(self) -> str:
        return name_of(self.what)


_running: dict[int, Call] = {}
"""By thread: the innermost call."""


def name_of(what: What) -> str:
    return what if isinstance(what, str) else what()


@contextmanager
def noted(what: What) -> Iterator[None]:
    """Note a call of this thread while the block runs."""
    thread = threading.get_ident()
    outer = _running.get(thread)
    _running[thread] = Call(what, thread, time.monotonic())
    try:
        yield
    finally:
        if outer is None:
            del _running[thread]
        else:
            _running[thread] = outer


def running() -> tuple[Call, ...]:
    """The calls that have not returned; any thread."""
    return tuple(_running.copy().values())


def overdue(calls: Iterable[Call], now: float, limit_seconds: float) -> Call | None:
    """The call that takes longest, if it takes longer than the limit. Pure."""
    oldest = min(calls, key=lambda call: call.since, default=None)
    if oldest is None or now - oldest.since <= limit_seconds:
        return None
    return oldest
