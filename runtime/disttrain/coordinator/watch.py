"""What the coordinator has heard lately. Not journaled: after a restart members tell it again."""

from collections import deque
from dataclasses import dataclass, field

from disttrain.coordinator.fields import MemberId
from disttrain.coordinator.reports import ReplicaReport, ShardReport

_WINDOW_SECONDS = 20.0
"""The speed shown is that of the last 20 s: long enough to be steady, short enough to follow."""


@dataclass(slots=True)
class Watch:
    """Last signs of life, last reports, recent speed."""

    heard: dict[MemberId, float] = field(default_factory=dict)
    replicas: dict[MemberId, ReplicaReport] = field(default_factory=dict)
    shards: dict[MemberId, ShardReport] = field(default_factory=dict)
    work_began: dict[MemberId, float] = field(default_factory=dict)
    history: deque[tuple[float, int]] = field(default_factory=deque)
    """Time and samples processed by the whole job."""

    def silence(self, member: MemberId, now: float) -> float:
        """Seconds since the member was heard; the first question starts the count."""
        return now - self.heard.setdefault(member, now)

    def forget(self, member: MemberId) -> None:
        """The member is gone."""
        for known in (self.heard, self.replicas, self.shards, self.work_began):
            known.pop(member, None)

    def speed_of(self, member: MemberId, now: float) -> float:
        """Samples per second of one replica since it got its first work."""
        report = self.replicas.get(member)
        seconds = now - self.work_began.setdefault(member, now)
        return report.progress.samples / seconds if report and seconds > 0 else 0.0

    def note_samples(self, samples: int, now: float) -> None:
        """Remembers how far the job is."""
        self.history.append((now, samples))
        while now - self.history[0][0] > _WINDOW_SECONDS:
            self.history.popleft()

    def samples_per_second(self) -> float:
        """Speed of the whole job, lately; 0 if not known yet."""
        if len(self.history) < 2:
            return 0.0
        (first, before), (last, after) = self.history[0], self.history[-1]
        return (after - before) / (last - first) if last > first else 0.0
