"""What a run between machines far from one another comes to, and how that is counted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from builders.distant_jobs import Steps
from builders.slow_links import SlowLinks


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """How one contender came to the target; NaN where it never did."""

    seconds: float
    samples: float
    sent_bytes: float
    """At all machines' cables, until then."""
    payload_bytes: float = math.nan
    """Pushed and fetched as replicas count it, at the end of the job."""
    all_sent_bytes: float = math.nan
    """At all cables, at the end of the job."""
    computing: float = math.nan
    """Part of the time since a replica's first step, without the optimizer: of the slowest."""
    time_shares: Mapping[str, float] = field(default_factory=dict)
    """As the status tells: forward, backward and optimizer beside waiting for data and pushes, and
    for fetches. Forward passes of evaluations between steps are in none of them."""
    late_steps: float = math.nan
    """Part of the steps that took a tenth longer than they should: what computing cost."""
    relay_share: float = math.nan
    """Of a core."""
    megabits: float = math.nan
    """A second, at all cables together, in the time of the clock on the wall."""


def sent(links: SlowLinks) -> int:
    """By all machines: each byte counts once."""
    return sum(carried.sent for carried in links.carried())


def busy(steps: Steps, until: float) -> float:
    """Part of the time since the first step; NaN without one."""
    done = [(began, ended) for began, ended in steps if ended <= until]
    if not done:
        return math.nan
    return sum(ended - began for began, ended in done) / (done[-1][1] - done[0][0])


def late(times: Sequence[Steps], seconds: float) -> float:
    lengths = [ended - began for steps in times for began, ended in steps]
    return sum(length > 1.1 * seconds for length in lengths) / len(lengths)


def idle(steps: Steps, began: float, end: float, second: float) -> int:
    """Seconds in which nobody was within a step."""
    count = int((end - began) / second)
    marked = [False] * count
    for first, last in steps:
        for index in range(
            max(0, int((first - began) / second)), min(count - 1, int((last - began) / second)) + 1
        ):
            marked[index] = True
    return marked.count(False)
