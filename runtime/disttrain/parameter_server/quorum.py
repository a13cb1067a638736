"""When what replicas have pushed is merged, and how long a replica is asked to wait. Pure."""

from collections import deque
from collections.abc import Collection, Mapping
from fractions import Fraction
from statistics import median
from typing import NamedTuple, TypeAlias

LEAST_PATIENCE_SECONDS = 2.0
"""Of a replica that waits for the merge: less than the pauses of a busy machine would end it."""
_PATIENCE = 4.0
"""Times what a replica computes between two pushes. Who is slower, or has no data left, is not
waited for longer."""
_SLACK = 0.5
"""Of the same time, where a replica computes meanwhile: the fetch has to be over before its next
push."""

_GRACE = 0.5
"""Of the shortest time between two pushes of a fragment by a replica that is present. Each merge
is a whole step of the outer rule: late pushes and new ones that make a quorum together would be
one more of them."""

COLUMNS = ("sender", "samples", "steps", "fragment")
"""Of the table in a checkpoint. Earlier versions wrote the first two of them."""


class Work(NamedTuple):
    """What a replica has pushed of a fragment since its last merge."""

    samples: int
    steps: int
    """0: an earlier version has not noted how many, of all or of the first of them."""

    def and_then(self, other: "Work") -> "Work":
        return Work(self.samples + other.samples, self.steps and self.steps + other.steps)


Gathered: TypeAlias = dict[int, dict[int, Work]]
"""By fragment and replica, what no merge holds yet."""


class Quorum:
    """Of one shard: as soon as enough replicas are present, a window for the others begins."""

    def __init__(self, replicas: int) -> None:
        """`replicas`: how many have to be present, if so many live."""
        self._replicas = replicas
        self._since: float | None = None
        """When there were enough."""
        self.ends_at: float | None = None
        """When the window is over; None: none is open."""

    def is_due(
        self, present: Collection[int], live: Collection[int], now: float, grace_seconds: float
    ) -> bool:
        """Whether to merge. `present`: who has pushed since the last merge; they may be dead.

        `grace_seconds`: the length of the window, as it is known by now.
        """
        if not present or (len(present) < self._replicas and set(live) - set(present)):
            self.merged()
            return False
        if self._since is None:
            self._since = now
        self.ends_at = self._since + grace_seconds
        return not set(live) - set(present) or now >= self.ends_at

    def merged(self) -> None:
        self._since = self.ends_at = None


class Rounds:
    """In which time each fragment of one replica has its turn: the median of the latest times.

    So neither a pause nor pushes ahead of their turn, as at the end of an epoch, count.
    """

    def __init__(self, fragments: int) -> None:
        self.seconds: float | None = None
        """None: not known."""
        self._fragments = fragments
        self._pushed_at: dict[int, float] = {}
        self._latest: deque[float] = deque(maxlen=2 * fragments + 1)

    def pushed(self, fragment: int, now: float, began: float | None) -> None:
        """A push is complete. `began`: when the replica got what it computes with, if known."""
        before = self._pushed_at.get(fragment)
        if before is not None:
            self._latest.append(now - before)
        elif not self._pushed_at and began is not None:
            self._latest.append((now - began) * self._fragments)
        self._pushed_at[fragment] = now
        self.seconds = median(self._latest) if self._latest else None


def grace(round_seconds: Collection[float], *, waits: bool) -> float:
    """How long a shard waits for others once the quorum is there.

    `round_seconds`: of those who are present, as `Rounds` has them; empty: not known.
    `waits`: they compute nothing meanwhile, and so have no time to give.
    """
    return 0.0 if waits else _GRACE * min(round_seconds, default=0.0)


def weights(work: Mapping[int, Work]) -> dict[int, float]:
    """What each replica counts in the mean: by its samples times its samples of a step.

    By samples alone where nobody knows the steps of one of them.
    """
    by_steps = all(one.steps for one in work.values())
    parts = {
        sender: Fraction(one.samples**2, one.steps) if by_steps else Fraction(one.samples)
        for sender, one in work.items()
    }
    whole = sum(parts.values())
    return {
        sender: float(one / whole) if whole else 1.0 / len(parts) for sender, one in parts.items()
    }


def patience(computing_seconds: float | None, *, waits: bool) -> float:
    """How long a fetch may wait for the merge of the push before it.

    `computing_seconds`: of the replica before that push; None: not known. `waits`: it computes
    nothing meanwhile, else no longer than what costs no computing.
    """
    if waits:
        return max(LEAST_PATIENCE_SECONDS, _PATIENCE * (computing_seconds or 0.0))
    return _SLACK * (computing_seconds or 0.0)


def as_rows(gathered: Gathered) -> list[list[int]]:
    return [
        [sender, *one, fragment]
        for fragment, work in sorted(gathered.items())
        for sender, one in sorted(work.items())
    ]


def from_rows(rows: Collection[Collection[int]]) -> Gathered:
    """Of several shards' tables, the most samples of each replica."""
    found: Gathered = {}
    for sender, samples, steps, fragment in rows:
        work, one = found.setdefault(fragment, {}), Work(samples, steps)
        work[sender] = max(one, work.get(sender, one))
    return found
