"""Simulated time, and a network that delays, loses, doubles and reorders: all from a seed."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

Action = Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Weather:
    """How bad the network is."""

    loss: float = 0.0
    duplication: float = 0.0
    delay: float = 0.05
    """Longest delay of a message in seconds; messages overtake one another."""


class Process:
    """One life of something that can be killed and paused."""

    def __init__(self) -> None:
        self.alive = True
        self.paused_until = 0.0


class Clockwork:
    """Runs actions in the order of their times."""

    def __init__(self, seed: int, weather: Weather) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self._weather = weather
        self._queue: list[tuple[float, int, Process | None, Action]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, process: Process | None, action: Action) -> None:
        """Does something later, unless the process is dead by then; a paused one does it late."""
        item = (self.now + seconds, next(self._numbers), process, action)
        heapq.heappush(self._queue, item)

    def send(self, receiver: Process | None, action: Action) -> None:
        """A message to a process."""
        copies = 1
        if self.chance.random() < self._weather.loss:
            copies = 0
        elif self.chance.random() < self._weather.duplication:
            copies = 2
        for _ in range(copies):
            self.after(self.chance.uniform(0.001, self._weather.delay), receiver, action)

    def step(self) -> bool:
        """Does the next thing; False when there is none."""
        if not self._queue:
            return False
        time, _, process, action = heapq.heappop(self._queue)
        self.now = time
        if process is None or (process.alive and process.paused_until <= time):
            action()
        elif process.alive:
            self.after(process.paused_until - time, process, action)
        return True
