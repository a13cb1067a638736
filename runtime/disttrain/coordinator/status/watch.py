"""What the coordinator has heard lately. Not journaled: after a restart members tell it again."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport

_WINDOW_SECONDS = 5.0
"""Speed and loss shown are those of the last 5 s: some heartbeats, and short enough to follow."""


class Moment(NamedTuple):
    """How far the job was."""

    time: float
    samples: int
    loss_sum: float
    loss_steps: int


@dataclass(slots=True)
class Watch:
    """Last signs of life, last reports, recent speed."""

    heard: dict[MemberId, float] = field(default_factory=dict)
    replicas: dict[MemberId, ReplicaReport] = field(default_factory=dict)
    shards: dict[MemberId, ShardReport] = field(default_factory=dict)
    work_began: dict[MemberId, float] = field(default_factory=dict)
    history: deque[Moment] = field(default_factory=deque)
    """The whole job, lately."""

    def silence(self, member: MemberId, now: float) -> float:
        """Seconds since the member was heard; the first question starts the count."""
        return now - self.heard.setdefault(member, now)

    def forgive(self, seconds: float, now: float) -> None:
        """The coordinator itself heard nothing for so long: nobody's silence counts.

        Who was heard since is not taken to be heard in the future.
        """
        self.heard = {member: min(time + seconds, now) for member, time in self.heard.items()}

    def forget(self, member: MemberId) -> None:
        """The member is gone."""
        for known in (self.heard, self.replicas, self.shards, self.work_began):
            known.pop(member, None)

    def speed_of(self, member: MemberId, now: float) -> float:
        """Samples per second of one replica since it got its first work."""
        report = self.replicas.get(member)
        seconds = now - self.work_began.setdefault(member, now)
        return report.progress.samples / seconds if report and seconds > 0 else 0.0

    def note(self, samples: int, ended: ReplicaReport, now: float) -> None:
        """Remembers how far the job is; `ended` is the sum of the reports of ended lives."""
        reports = [ended, *self.replicas.values()]
        moment = Moment(
            time=now,
            samples=samples,
            loss_sum=sum(report.loss_sum for report in reports),
            loss_steps=sum(report.loss_steps for report in reports),
        )
        self.history.append(moment)
        while now - self.history[0].time > _WINDOW_SECONDS:
            self.history.popleft()

    def samples_per_second(self) -> float:
        """Speed of the whole job, lately; 0 if not known yet."""
        if len(self.history) < 2:
            return 0.0
        first, last = self.history[0], self.history[-1]
        seconds = last.time - first.time
        return (last.samples - first.samples) / seconds if seconds > 0 else 0.0

    def loss(self) -> float | None:
        """Mean training loss, lately; None before the first step."""
        if not self.history:
            return None
        first, last = self.history[0], self.history[-1]
        steps = last.loss_steps - first.loss_steps
        if steps > 0:
            return (last.loss_sum - first.loss_sum) / steps
        return last.loss_sum / last.loss_steps if last.loss_steps else None
