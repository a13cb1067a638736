"""Which job is looked at next. Pure: times are handed in, as seconds of any steady clock.

A job waits at most once, is looked at by one worker at a time, and waits longer after each failure.
Of those that are due the groups take turns: a group's thousands do not stand before another's one.
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_DELAY = 1.0
"""Seconds after a first failure; they double with each."""
LONGEST_DELAY = 300.0

_SPARE = 64
"""Entries that may count for nothing before it is worth while to look for them."""


class Queue(Generic[Key]):
    """Jobs and when they are due."""

    def __init__(self, group: Callable[[Key], Hashable] = lambda _: None) -> None:
        self._group = group
        self._due: dict[Key, float] = {}
        self._turns: dict[Hashable, deque[tuple[float, Key]]] = {}
        """Jobs that were found to be due, by group; the group whose turn it is comes first."""
        self._heap: list[tuple[float, int, Key]] = []
        """Jobs that nobody works on; entries that are not as `_due` says count for nothing."""
        self._num_added = 0
        self._active: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._backoff_ends: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def failures(self, key: Key) -> int:
        return self._failures.get(key, 0)

    def add(self, key: Key, at: float) -> None:
        """Look at a job at a time, or earlier if it waits already; not while it backs off."""
        at = max(at, self._backoff_ends.get(key, at))
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        if key not in self._active:
            self._push(key)

    def reset_backoff(self, key: Key) -> None:
        """End the backoff of a job: somebody changed it."""
        self._failures.pop(key, None)
        self._backoff_ends.pop(key, None)

    def num_due(self, now: float) -> int:
        return sum(at <= now for at in self._due.values())

    def take(self, now: float) -> Key | None:
        """A job that is due; it is in work until `done` or `failed` is called for it."""
        self._sort_out(now)
        if not self._turns:
            return None
        group = next(iter(self._turns))
        waiting = self._turns.pop(group)
        _, key = waiting.popleft()
        if waiting:
            self._turns[group] = waiting
        del self._due[key]
        self._active.add(key)
        return key

    def next_at(self) -> float | None:
        self._drop_void_turns()
        first = [waiting[0][0] for waiting in self._turns.values()]
        while self._heap:
            at, _, key = self._heap[0]
            if self._counts(at, key):
                return min([at, *first])
            # It was added again for another time.
            heapq.heappop(self._heap)
        return min(first, default=None)

    def _sort_out(self, now: float) -> None:
        """Let those that are due wait for their group's turn, in the order of their times."""
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._counts(at, key):
                self._turns.setdefault(self._group(key), deque()).append((at, key))
        self._drop_void_turns()

    def _drop_void_turns(self) -> None:
        for group, waiting in list(self._turns.items()):
            while waiting and not self._counts(*waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._turns[group]

    def _counts(self, at: float, key: Key) -> bool:
        return self._due.get(key) == at and key not in self._active

    def lateness(self, now: float) -> float:
        """Seconds for which a job is due that nobody works on; 0 if none is."""
        at = self.next_at()
        return 0.0 if at is None else max(0.0, now - at)

    def done(self, key: Key) -> None:
        self._active.discard(key)
        self.reset_backoff(key)
        if key in self._due:
            self._push(key)

    def failed(self, key: Key, now: float) -> float:
        """The work on a job failed; it is due again after the seconds that are returned."""
        self._active.discard(key)
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self.failures(key), 10))
        self._failures[key] = self.failures(key) + 1
        self._backoff_ends[key] = now + delay
        self._due.pop(key, None)
        self.add(key, now + delay)
        return delay

    def _push(self, key: Key) -> None:
        self._num_added += 1
        heapq.heappush(self._heap, (self._due[key], self._num_added, key))
        if len(self._heap) > 2 * len(self._due) + _SPARE:
            self._drop_void()

    def _drop_void(self) -> None:
        """Keep one entry for each job: those for a far time would come to the top only then."""
        entries = enumerate(self._due.items())
        self._heap = [(at, number, key) for number, (key, at) in entries if key not in self._active]
        heapq.heapify(self._heap)
