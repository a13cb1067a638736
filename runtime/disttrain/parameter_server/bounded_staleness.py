"""Which push a shard applies next, so that none gets older than a bound (`staleness.maximum`).

Pure. What a replica fetched is a gradient to come, whose staleness grows with every other push. A
push may begin if all gradients to come still fit within the bound when they are pushed in the order
of their fetches. If not, it waits for the pushes of those who fetched earlier. So nobody waits for
who waits himself: a cycle would need a fetch that came before itself, across shards, too.

With at most one replica more than the bound has updates, no gradient gets too old. The bound is the
stale synchronous parallel model's (Ho et al. 2013), where the quickest waits; here the staleness is
of single pushes.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from disttrain.parameter_server.quorum import patience


class _Gradient(NamedTuple):
    version: int
    """Updates in the values that it is computed on."""
    since: float
    """When these were given out, or when its push arrived; in seconds, by the shard's clock."""


@dataclass(slots=True)
class _Sender:
    to_come: _Gradient | None = None
    """What it has fetched first since its last push."""
    waiting: _Gradient | None = None
    """A push that has arrived, and has not begun."""
    is_pushing: bool = False
    """The first chunk of a push is applied, the last one is not."""
    heard_at: float = 0.0
    """When it last fetched, pushed or asked to push."""
    seconds: float | None = None
    """From the fetch to the push, of the latest; None: not known."""


class BoundedStaleness:
    """Of one shard, whose senders have one gradient each; belongs to its thread."""

    def __init__(self, most: int) -> None:
        """`most`: the largest staleness of a push, in updates."""
        self.waited_seconds = 0.0
        """Pushes have waited so long, in all."""
        self._most = most
        self._senders: defaultdict[int, _Sender] = defaultdict(_Sender)

    def fetched(self, sender: int, version: int, now: float) -> None:
        """A sender gets parameters of this version, to compute the next push with."""
        known = self._senders[sender]
        known.heard_at = now
        known.to_come = known.to_come or _Gradient(version, now)

    def arrived(self, sender: int, version: int, now: float) -> None:
        """A push of a gradient of this version is here; said again, it changes nothing."""
        known = self._senders[sender]
        known.heard_at = now
        if known.waiting is None:
            known.seconds = known.seconds if known.to_come is None else now - known.to_come.since
            known.to_come, known.waiting = None, _Gradient(version, now)

    def may_begin(self, sender: int, count: int, now: float) -> bool:
        """Whether the push of this sender that has arrived may be applied now; False: it waits.

        `count`: the version of the shard's values.
        """
        known = self._senders[sender]
        known.heard_at = now
        others = sorted(self._other_versions(sender, now))
        if known.waiting is None or not others or others[0] >= known.waiting.version:
            return True
        after = count + 1 + sum(each.is_pushing for each in self._senders.values())
        return all(after + place - other <= self._most for place, other in enumerate(others))

    def begun(self, sender: int, now: float) -> None:
        """The first chunk of the push that has arrived is about to be applied."""
        known = self._senders[sender]
        if known.waiting is not None:
            self.waited_seconds += now - known.waiting.since
        known.waiting, known.is_pushing = None, True

    def ended(self, sender: int, now: float) -> None:
        """Its push is complete, or was given up."""
        known = self._senders[sender]
        known.waiting, known.is_pushing, known.heard_at = None, False, now

    def drop(self, sender: int) -> None:
        """It pushes nothing more."""
        self._senders.pop(sender, None)

    def _other_versions(self, sender: int, now: float) -> Iterator[int]:
        """Of the gradients of others that are not applied, and are to be expected soon."""
        longest = max((each.seconds or 0.0 for each in self._senders.values()), default=0.0)
        for number, known in self._senders.items():
            gradient = known.waiting or known.to_come
            is_awaited = now - known.heard_at <= patience(known.seconds or longest, waits=True)
            if number != sender and gradient is not None and is_awaited:
                yield gradient.version
