"""Which push a shard applies next, so that none gets older than a bound (`staleness.maximum`).

Pure. What a replica fetched is a gradient to come, whose staleness grows with every other push. A
push may begin if all gradients to come still fit within the bound when they are pushed in the order
of their fetches. If not, it waits for the pushes of those who fetched earlier. So nobody waits for
who waits himself: a cycle would need a fetch that came before itself, across shards, too.

With at most one replica more than the bound has updates, no gradient gets too old, unless its
replica is so late that others do not wait for it any more. The bound is the stale synchronous
parallel model's (Ho et al. 2013), where the quickest waits; here it is of single pushes.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from statistics import median
from typing import NamedTuple

from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.quorum import patience

_LATEST = 5
"""So many times of a replica count: neither a pause nor one quick step says what is usual."""
_SLOWER = 4.0
"""Times the usual seconds of all replicas: who is slower than that is waited for as if it were
not."""


class _Stage(Enum):
    COMPUTED = auto()
    """Its parameters were given out."""
    WAITING = auto()
    """Its push has arrived, and is to come again."""
    APPLIED = auto()
    """The first chunk of its push is in the values, the last one is not."""


class _Gradient(NamedTuple):
    stage: _Stage
    version: int
    """Updates in the values that it is computed on."""
    since: float
    """When it came to this stage; in seconds, by the shard's clock."""
    heard_at: float
    """When it came there, or its replica was last told to wait."""
    push: int = 0
    """The number of its push, once that has arrived."""


@dataclass(slots=True)
class _Sender:
    gradient: _Gradient | None = None
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))
    """From a fetch to its push."""


class BoundedStaleness:
    """Of one shard, whose senders have one gradient each; belongs to its thread."""

    def __init__(self, most: int) -> None:
        """`most`: the largest staleness of a push, in updates."""
        self.waited_seconds = 0.0
        """Pushes that were applied have waited so long, in all."""
        self._most = most
        self._senders: defaultdict[SenderIncarnation, _Sender] = defaultdict(_Sender)

    def fetched(self, sender: SenderIncarnation, version: int, now: float) -> None:
        """A sender gets parameters of this version, to compute the next push with."""
        self._senders[sender].gradient = _Gradient(_Stage.COMPUTED, version, now, now)

    def arrived(self, sender: SenderIncarnation, push: int, version: int, now: float) -> None:
        """A push of a gradient of this version is here; said again, it changes nothing."""
        known = self._senders[sender]
        gradient = known.gradient
        if gradient is not None and gradient.stage is _Stage.WAITING:
            return
        if gradient is not None and gradient.stage is _Stage.COMPUTED:
            known.seconds.append(now - gradient.since)
        known.gradient = _Gradient(_Stage.WAITING, version, now, now, push)

    def is_waiting(self, sender: SenderIncarnation, push: int) -> bool:
        """Whether this push has arrived, and nothing of it is applied."""
        gradient = self._senders[sender].gradient
        if gradient is None or gradient.stage is not _Stage.WAITING:
            return False
        return gradient.push == push

    def may_begin(self, sender: SenderIncarnation, count: int, now: float) -> bool:
        """Whether the push of this sender that has arrived may be applied now; False: it waits.

        `count`: the version of the shard's values.
        """
        own = self._senders[sender].gradient
        if own is None or own.stage is not _Stage.WAITING:
            return True
        if self._fits(own.version, count, list(self._of_others(sender, now))):
            return True
        # Who may begin and does not is late.
        self._senders[sender].gradient = own._replace(heard_at=now)
        return False

    def _fits(self, version: int, count: int, others: Sequence[_Gradient]) -> bool:
        to_come = sorted(each.version for each in others if each.stage is not _Stage.APPLIED)
        if not to_come or to_come[0] >= version:
            return True
        after = count + 1 + len(others) - len(to_come)
        return all(after + place - each <= self._most for place, each in enumerate(to_come))

    def begun(self, sender: SenderIncarnation, now: float) -> None:
        """The first chunk of the push that has arrived is about to be applied."""
        known = self._senders[sender]
        gradient = known.gradient
        if gradient is not None and gradient.stage is _Stage.WAITING:
            self.waited_seconds += now - gradient.since
            known.gradient = _Gradient(_Stage.APPLIED, gradient.version, now, now)

    def ended(self, sender: SenderIncarnation) -> None:
        """Its push is complete, or was given up."""
        self._senders[sender].gradient = None

    def drop(self, incarnation: SenderIncarnation) -> None:
        """This incarnation and earlier ones push nothing more."""
        incarnation.forget_in(self._senders)

    def clear(self) -> None:
        """The values are those of a checkpoint now, which nobody has fetched."""
        self._senders.clear()

    def _of_others(self, sender: SenderIncarnation, now: float) -> Iterator[_Gradient]:
        """Gradients whose pushes are to be expected soon."""
        paces = {
            other: median(known.seconds) for other, known in self._senders.items() if known.seconds
        }
        slowest = _SLOWER * median(paces.values()) if paces else 0.0
        for other, known in self._senders.items():
            gradient = known.gradient
            if other == sender or gradient is None:
                continue
            seconds = min(paces.get(other, slowest), slowest)
            if now - gradient.heard_at <= patience(seconds, waits=True):
                yield gradient
