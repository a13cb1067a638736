"""Ends this process when the task's code does not return.

The heartbeats of a process whose compute thread hangs go on, so nobody else would ever notice: it
would keep its portions for ever. Its next incarnation gets new ones, and these go to others.

A call of native code that keeps the interpreter's lock stops every thread of Python, this one and
the heartbeats too. Then the job goes on without the replica, and a thread of faulthandler, which
needs no lock, ends the process: nobody else may be left to do the work. Its clock goes on while the
process is stopped, so that a stop for longer than the limit ends it, too.
"""

import faulthandler
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from disttrain.launch.exit_code import ExitCode
from disttrain.task import user_code
from disttrain.task.user_code import Call
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_LOOKS_PER_LIMIT = 10
_MOST_SECONDS_BETWEEN_LOOKS = 1.0
_STOPPED_SECONDS = 5.0
"""A look that comes so much too late: the whole process was stopped, by Ctrl-Z for example."""

_ARMING = threading.Lock()
"""Held while the thread of faulthandler is told, and over a fork."""


def _before_fork() -> None:
    # A forked child has no copy of that thread, but of the lock on which its own end would wait.
    _ARMING.acquire()
    faulthandler.cancel_dump_traceback_later()


os.register_at_fork(
    before=_before_fork, after_in_parent=_ARMING.release, after_in_child=_ARMING.release
)


def end_process(hanging: Call, seconds: float) -> None:
    """Say where it hangs and end at once: a thread that hangs cannot be ended by itself."""
    frame = sys._current_frames().get(hanging.thread)  # noqa: SLF001  public in spite of its name
    place = "an unknown place" if frame is None else user_code.place_of(frame)
    LOG.error(
        "ends: the task's code does not return",
        call=hanging.name,
        at=place,
        seconds=round(seconds, 1),
        remedy="see spec.replicas.callTimeoutSeconds",
    )
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(ExitCode.CRASHED)


def end_unless_looked_after(seconds: float) -> None:
    """End this process after so many seconds without another call of this: no thread runs then."""
    with _ARMING:
        faulthandler.dump_traceback_later(seconds, exit=True)


class Watchdog:
    """A thread that looks at the calls under way, from entry to exit; no limit, no thread."""

    def __init__(
        self,
        limit_seconds: float | None,
        when_overdue: Callable[[Call, float], None] = end_process,
        clock: Callable[[], float] = time.monotonic,
        last_resort: Callable[[float], None] = end_unless_looked_after,
    ) -> None:
        """`when_overdue` gets the call, and for how many seconds it has not returned.

        `last_resort` is told again and again, and acts if it is not for so many seconds.
        """
        self._limit_seconds = limit_seconds
        self._when_overdue = when_overdue
        self._clock = clock
        self._last_resort = last_resort
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._limit_seconds is not None:
            self._last_resort(self._limit_seconds + _STOPPED_SECONDS)
            arguments = (self._limit_seconds,)
            self._thread = threading.Thread(
                target=self._watch, args=arguments, name="watchdog", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self, limit_seconds: float) -> None:
        pause = min(limit_seconds / _LOOKS_PER_LIMIT, _MOST_SECONDS_BETWEEN_LOOKS)
        looked = awake_since = self._clock()
        while not self._over.wait(pause):
            self._last_resort(limit_seconds + _STOPPED_SECONDS)
            now = self._clock()
            if now - looked > pause + _STOPPED_SECONDS:
                # Nothing could return meanwhile, so nothing hangs that was not seen to since.
                awake_since = now
            looked = now
            hanging = user_code.overdue(user_code.calls_under_way(), now, limit_seconds)
            if hanging is not None and now - awake_since > limit_seconds:
                self._when_overdue(hanging, now - hanging.since)
