"""What the coordinator has heard lately. Not journaled: after a restart members tell it again."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport

_WINDOW_SECONDS = 5.0
"""Speed and loss shown are those of the last 5 s: some heartbeats, and short enough to follow."""
_PAUSES_FORGIVEN = 8
"""What waits in a queue is read in fewer rounds of the slowest loop."""


class Moment(NamedTuple):
    """How far the job was."""

    time: float
    samples: int
    loss_sum: float
    loss_steps: int
    reported_sums: dict[str, float]
    reported_steps: dict[str, int]


@dataclass(slots=True)
class Watch:
    """Last signs of life, last reports, recent speed."""

    heard: dict[MemberId, float] = field(default_factory=dict)
    pauses: dict[MemberId, int] = field(default_factory=dict)
    """How many of this process's pauses were forgiven since the member was heard."""
    looked: float = -math.inf
    """When all silences were looked at last."""
    replicas: dict[MemberId, ReplicaReport] = field(default_factory=dict)
    shards: dict[MemberId, ShardReport] = field(default_factory=dict)
    work_began: dict[MemberId, float] = field(default_factory=dict)
    history: deque[Moment] = field(default_factory=deque)
    """The whole job, lately."""
    loss: float | None = None
    """Mean training loss over the steps of the last window that had any; None before the first.

    While no step ends it stays what it was: the mean over the whole run would be no news.
    """
    reported: dict[str, float] = field(default_factory=dict)
    """The same of what the task's loss reports, by name; each from its first step on."""

    def silence(self, member: MemberId, now: float) -> float:
        """Seconds since the member was heard; the first question starts the count."""
        return now - self.heard.setdefault(member, now)

    def hear(self, member: MemberId, now: float) -> None:
        self.heard[member] = now
        self.pauses.pop(member, None)

    def may_look(self, seconds: float, now: float) -> bool:
        """Whether everybody's silence was looked at so long ago; from now on it was."""
        if abs(now - self.looked) < seconds:
            return False
        self.looked = now
        return True

    def forgive(self, seconds: float, now: float) -> None:
        """The coordinator itself heard nothing for so long: nobody's silence counts.

        Who was heard since is not taken to be heard in the future. A member's silence is forgiven
        a few times only: whoever is not heard between so many pauses is dead, however slow this
        process is.
        """
        for member, time in self.heard.items():
            pauses = self.pauses.get(member, 0)
            if pauses < _PAUSES_FORGIVEN:
                self.pauses[member] = pauses + 1
                self.heard[member] = min(time + seconds, now)

    def forget(self, member: MemberId) -> None:
        for known in (self.heard, self.pauses, self.replicas, self.shards, self.work_began):
            known.pop(member, None)

    def speed_of(self, member: MemberId, now: float) -> float:
        """Samples per second of one replica since it got its first work."""
        report = self.replicas.get(member)
        seconds = now - self.work_began.setdefault(member, now)
        return report.progress.samples / seconds if report and seconds > 0 else 0.0

    def note(self, samples: int, ended: ReplicaReport, now: float) -> None:
        """Remembers how far the job is; `ended` is the sum of the reports of ended incarnations."""
        reports = [ended, *self.replicas.values()]
        moment = Moment(
            time=now,
            samples=samples,
            loss_sum=sum(report.loss_sum for report in reports),
            loss_steps=sum(report.loss_steps for report in reports),
            reported_sums=_total(report.reported_sums for report in reports),
            reported_steps=_total(report.reported_steps for report in reports),
        )
        self.history.append(moment)
        # Two at least: steps may be further apart than a window is long.
        while len(self.history) > 2 and now - self.history[0].time > _WINDOW_SECONDS:
            self.history.popleft()
        self._take_means(self.history[0], moment)

    def samples_per_second(self) -> float:
        if len(self.history) < 2:
            return 0.0
        first, last = self.history[0], self.history[-1]
        seconds = last.time - first.time
        return (last.samples - first.samples) / seconds if seconds > 0 else 0.0

    def _take_means(self, first: Moment, last: Moment) -> None:
        steps = last.loss_steps - first.loss_steps
        if steps > 0:
            self.loss = (last.loss_sum - first.loss_sum) / steps
        for name, number in last.reported_steps.items():
            new = number - first.reported_steps.get(name, 0)
            if new > 0:
                total = last.reported_sums[name] - first.reported_sums.get(name, 0.0)
                self.reported[name] = total / new


_Number = TypeVar("_Number", int, float)


def _total(parts: Iterable[Mapping[str, _Number]]) -> dict[str, _Number]:
    total: dict[str, _Number] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total
