"""Time that passes only while everybody waits: threads that take turns, in an order that repeats.

Code that waits by a transport's clock runs here as it is. One thread runs at a time. When it waits,
time is moved to what is due next, and that is done. Whoever makes a `VirtualTime` is its first
thread.
"""

import heapq
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias


class Killed(BaseException):
    """The thread's process has died: nothing that it could still do is done."""


class VirtualThread(threading.Thread):
    """One that was started by `VirtualTime.start`. To join it would take the others' turn."""

    def __init__(self, run: Callable[[], None] | None = None) -> None:
        super().__init__(target=run, daemon=True)
        self.is_over = False
        self.is_killed = False
        self.paused_until = 0.0
        """Messages and moments wait until then, as for a process that the system has stopped."""
        self.turn = threading.Lock()
        self.turn.acquire()
        self.waits = 0
        """Times that it has waited: an event that ends an earlier wait is none."""


class Bell:
    """Ends the waits of the threads that wait for it."""

    def __init__(self, time: "VirtualTime") -> None:
        self.waiting: dict[VirtualThread, int] = {}
        self._time = time

    def ring(self) -> None:
        for thread, waits in self.waiting.items():
            self._time.resume(thread, waits)
        self.waiting.clear()


_Event: TypeAlias = tuple[float, int, VirtualThread | None, Callable[[], None] | int]
"""When, which of those at once comes first, who goes on or None, and what is done or its wait."""


class VirtualTime:
    """A clock, and the threads that go by it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[_Event] = []
        self._numbers = itertools.count()
        self._first = self._running = VirtualThread()
        self._threads: list[VirtualThread] = []
        self._error: BaseException | None = None

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something later, in whatever thread; it must not wait."""
        event = (self.now + seconds, next(self._numbers), None, act)
        heapq.heappush(self._events, event)

    def start(self, run: Callable[[], None]) -> VirtualThread:
        """A thread that begins when this one waits. What it raises, the first one raises."""
        started = VirtualThread(lambda: self._run(started, run))
        self._threads = [thread for thread in self._threads if not thread.is_over]
        self._threads.append(started)
        started.start()
        self.resume(started, 0)
        return started

    def wait(self, seconds: float, bells: Sequence[Bell] = ()) -> None:
        """Let others run until the time has passed or a bell rings. Raises Killed."""
        thread = self._running
        if thread.is_killed:
            raise Killed
        for bell in bells:
            bell.waiting[thread] = thread.waits
        event = (self.now + seconds, next(self._numbers), thread, thread.waits)
        heapq.heappush(self._events, event)
        self._let_run(thread)
        if thread is self._first and self._error is not None:
            error, self._error = self._error, None
            raise error
        if thread.is_killed:
            raise Killed

    def resume(self, thread: VirtualThread, waits: int) -> None:
        """End a wait of this thread; nothing happens if it is over."""
        heapq.heappush(self._events, (self.now, next(self._numbers), thread, waits))

    def kill(self, thread: VirtualThread) -> None:
        """End a thread where it waits. Whoever kills the one that runs raises Killed there."""
        thread.is_killed = True
        if thread is not self._running:
            self.resume(thread, thread.waits)

    def close(self) -> None:
        """Kill all threads, and return when they are over. Of the first thread."""
        for thread in self._threads:
            self.kill(thread)
        while not all(thread.is_over for thread in self._threads):
            self.wait(0.0)

    def _run(self, thread: VirtualThread, run: Callable[[], None]) -> None:
        thread.turn.acquire()
        try:
            if not thread.is_killed:
                run()
        except Killed:
            pass
        except BaseException as error:
            self._fail(error)
        thread.is_over = True
        self._let_run(thread)

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self.resume(self._first, self._first.waits)

    def _let_run(self, me: VirtualThread) -> None:
        """Do what is due until somebody goes on; return when it is this thread, or it is over."""
        while True:
            self.now, _, thread, what = heapq.heappop(self._events)
            if callable(what):
                self._do(what)
            elif thread is None or thread.is_over or what != thread.waits:
                continue
            elif thread.paused_until > self.now and not thread.is_killed:
                event = (thread.paused_until, next(self._numbers), thread, what)
                heapq.heappush(self._events, event)
            else:
                break
        thread.waits += 1
        if thread is not me:
            self._running = thread
            thread.turn.release()
            if not me.is_over:
                me.turn.acquire()

    def _do(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            self._fail(error)
