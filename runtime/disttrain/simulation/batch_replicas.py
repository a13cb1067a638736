"""The replicas of a simulated batch method: what their machines are busy with. Pure.

Moments are looked at one after the other: a request reaches the coordinator, a group is granted,
a gradient is computed, its result is told. Idle replicas ask again when something has changed.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from disttrain.sandblaster.batch.driver import Driver, RunState, Stage
from disttrain.sandblaster.batch.groups import Attempt, Worker
from disttrain.simulation.machines import SHARD_BYTES_PER_SECOND, Machines, StepTimes
from disttrain.transport.in_memory import Link, carried

_MOST_HELD = 2
"""Attempts of a replica: one that it computes, and one whose data it reads meanwhile."""


@dataclass(slots=True)
class ShardMachine:
    """One at a time is applied or given out."""

    nbytes: int
    """Of its part of the parameters."""
    link: Link | None
    busy_until: float = 0.0

    def works(self, since: float, nbytes: int) -> float:
        """When it has done this, begun at `since` at the earliest."""
        self.busy_until = max(since, self.busy_until) + nbytes / SHARD_BYTES_PER_SECOND
        return self.busy_until


@dataclass(slots=True)
class ReplicaMachine:
    """One replica."""

    worker: Worker
    times: StepTimes
    link: Link | None
    point: int = 0
    """The evaluation whose parameters it has."""
    computes_until: float = 0.0
    sends_until: float = 0.0
    """Of the gradient before: two are the most, one that is computed and one on its way."""
    held: list[Attempt] = field(default_factory=list)
    """Whose results were not told."""
    waiting: list[Attempt] = field(default_factory=list)
    """That are not begun."""
    asks: bool = False
    computing_seconds: float = 0.0
    nbytes: int = 0


class BatchReplicas:
    """All replicas of a run, through its evaluations."""

    def __init__(
        self,
        machines: Machines,
        shards: Sequence[ShardMachine],
        replicas: Sequence[ReplicaMachine],
        samples: Callable[[int], Sequence[int]],
        copies_from: int,
    ) -> None:
        """`samples`: of each portion of a group. `copies_from`: see `BackupRules`; 0: none."""
        self.replicas = replicas
        self._latency = machines.latency_seconds
        self._shards = shards
        self._samples = samples
        self._copies_from = copies_from
        self._moments: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self._idle: list[ReplicaMachine] = []

    def evaluate(
        self,
        driver: Driver,
        state: RunState,
        begun: float,
        take: Callable[[Attempt], None],
    ) -> float:
        """Until all groups have a result: when that is. `take`: a result has come."""
        self._driver, self._state, self._take = driver, state, take
        self._moments.clear()
        self._idle.clear()
        for replica in self.replicas:
            # What is computed for an evaluation that is over is not broken off.
            replica.held.clear()
            replica.waiting.clear()
            replica.asks = False
            self._ask(replica, max(begun, replica.computes_until))
        now = begun
        while state.stage is Stage.COMPUTING:
            now, _, happens = heapq.heappop(self._moments)
            happens(now)
        return now

    def _at(self, moment: float, happens: Callable[[float], None]) -> None:
        heapq.heappush(self._moments, (moment, next(self._numbers), happens))

    def _ask(self, replica: ReplicaMachine, now: float) -> None:
        if replica.asks or len(replica.held) >= _MOST_HELD:
            return
        replica.asks = True
        self._at(now + self._latency, partial(self._request, replica))

    def _request(self, replica: ReplicaMachine, now: float) -> None:
        holding = [attempt.number for attempt in replica.held]
        attempt = self._driver.request_group(self._state, replica.worker, holding)
        if attempt is None:
            self._idle.append(replica)
            return
        replica.held.append(attempt)
        self._at(now + self._latency, partial(self._granted, replica, attempt))

    def _granted(self, replica: ReplicaMachine, attempt: Attempt, now: float) -> None:
        replica.asks = False
        replica.waiting.append(attempt)
        self._ask(replica, now)
        if len(replica.waiting) == 1 and replica.computes_until <= now:
            self._begin(replica, now)

    def _begin(self, replica: ReplicaMachine, now: float) -> None:
        attempt = replica.waiting[0]
        begun = max(self._fetched(replica, now), replica.sends_until)
        seconds = sum(map(replica.times.seconds, self._samples(attempt.group)))
        replica.computing_seconds += seconds
        replica.computes_until = begun + seconds
        self._at(replica.computes_until, partial(self._computed, replica, attempt))

    def _fetched(self, replica: ReplicaMachine, now: float) -> float:
        """When it has the point to compute at."""
        number, there = self._state.evaluation.number, now
        if replica.point == number:
            return now
        replica.point = number
        for shard in self._shards:
            ready = shard.works(now + self._latency, shard.nbytes)
            arrived = carried(ready, shard.nbytes, shard.link, replica.link)
            there = max(there, arrived + self._latency)
            replica.nbytes += shard.nbytes
        return there

    def _computed(self, replica: ReplicaMachine, attempt: Attempt, now: float) -> None:
        replica.waiting.remove(attempt)
        staged = now
        for shard in self._shards:
            arrived = carried(now, shard.nbytes, replica.link, shard.link) + self._latency
            staged = max(staged, shard.works(arrived, shard.nbytes) + self._latency)
            replica.nbytes += shard.nbytes
        replica.sends_until = staged
        self._at(staged + self._latency, partial(self._told, replica, attempt))
        if replica.waiting:
            self._begin(replica, now)

    def _told(self, replica: ReplicaMachine, attempt: Attempt, now: float) -> None:
        replica.held.remove(attempt)
        self._take(attempt)
        self._ask(replica, now)
        evaluation = self._state.evaluation
        if evaluation.groups - len(evaluation.winners) <= self._copies_from:
            idle, self._idle = self._idle, []
            for each in idle:
                self._request(each, now)
