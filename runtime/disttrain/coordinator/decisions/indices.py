"""Who lives and which orders have no answer, found without a search through the state. No I/O."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from disttrain.coordinator.journal.state import IssuedOrder, Life, State
from disttrain.coordinator.protocol.fields import MemberId

_Known = tuple[int, tuple[Life, ...]]
"""Epoch, and who lived in it."""
_Key = TypeVar("_Key", MemberId, type[object])


class LiveMembers:
    """The living of one state in the order of their indices, sorted once for each epoch.

    Lives begin and end by entries only.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._replicas: _Known = (-1, ())
        self._workers: _Known = (-1, ())
        self._shards: _Known = (-1, ())

    def replicas(self) -> Sequence[Life]:
        """Loops that bring their own data included."""
        epoch = self._state.replicas_epoch
        if self._replicas[0] != epoch:
            self._replicas = (epoch, _live(self._state.replicas))
        return self._replicas[1]

    def workers(self) -> Sequence[Life]:
        """The replicas that do what they are told: no loops that bring their own data."""
        epoch = self._state.replicas_epoch
        if self._workers[0] != epoch:
            self._workers = (epoch, tuple(one for one in self.replicas() if not one.own_data))
        return self._workers[1]

    def shards(self) -> Sequence[Life]:
        """Those that have no values yet included."""
        epoch = self._state.shards_epoch
        if self._shards[0] != epoch:
            self._shards = (epoch, _live(self._state.shards))
        return self._shards[1]


class OpenOrders:
    """The orders without an answer of one state, by member and by kind. Tell it of each new one.

    `State.orders` stays the truth: an order that is answered or void leaves that, and is dropped
    here when somebody looks for it.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_member: defaultdict[MemberId, list[int]] = defaultdict(list)
        self._by_kind: defaultdict[type[object], list[int]] = defaultdict(list)
        for issued in state.orders.values():
            self.add(issued)

    def add(self, issued: IssuedOrder) -> None:
        self._by_member[issued.member].append(issued.id)
        self._by_kind[type(issued.order)].append(issued.id)

    def of_member(self, member: MemberId) -> list[IssuedOrder]:
        """Oldest first."""
        return self._open(self._by_member, member)

    def of_kind(self, kind: type[object]) -> list[IssuedOrder]:
        """Oldest first."""
        return self._open(self._by_kind, kind)

    def _open(self, index: dict[_Key, list[int]], key: _Key) -> list[IssuedOrder]:
        numbers = index.get(key)
        if numbers is None:
            return []
        found = [order for n in numbers if (order := self._state.orders.get(n)) is not None]
        if found:
            index[key] = [order.id for order in found]
        else:
            del index[key]
        return found


def _live(lives: dict[int, Life]) -> tuple[Life, ...]:
    return tuple(lives[index] for index in sorted(lives) if lives[index].live)
