"""The orders without an answer, found by their member and by their kind. No I/O.

An index over `State.orders`, which stays the truth: an order that is answered or void leaves that,
and is dropped here when somebody looks for it.
"""

from collections import defaultdict
from typing import TypeVar

from disttrain.coordinator.journal.state import IssuedOrder, State
from disttrain.coordinator.protocol.fields import MemberId

_Key = TypeVar("_Key", MemberId, type[object])


class OpenOrders:
    """Of one state; tell it of each order that is given."""

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
