"""Who takes part and which commands have no answer, found without a search. No I/O."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.journal.state import IssuedCommand, State
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.transport.header import Role

_Key = TypeVar("_Key", MemberId, type[object])


class LiveMembers:
    """The living groups of one state in the order of their indices, sorted once for each epoch.

    Incarnations begin and end by entries only.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._epochs = (-1, -1)
        self._found: tuple[tuple[Group, ...], ...] = ((), (), (), ())

    def replicas(self) -> Sequence[Group]:
        """Loops that bring their own data included."""
        return self._sorted()[0]

    def workers(self) -> Sequence[Group]:
        """The replicas that do what they are told, and whose word counts.

        No loops that bring their own data, and no joiners: these measure, upload and export
        nothing, and get data alone.
        """
        return self._sorted()[1]

    def shards(self) -> Sequence[Group]:
        """Those that have no values yet included."""
        return self._sorted()[2]

    def everybody(self) -> Sequence[Group]:
        """Replicas and then shards, those included of which not all members have joined."""
        return self._sorted()[3]

    def _sorted(self) -> tuple[tuple[Group, ...], ...]:
        epochs = self._state.replicas_epoch, self._state.shards_epoch
        if epochs != self._epochs:
            everybody = *_live(self._state.replicas), *_live(self._state.shards)
            whole = [one for one in everybody if one.is_whole]
            replicas = tuple(one for one in whole if one.role is Role.REPLICA)
            workers = tuple(one for one in replicas if not one.is_guest)
            shards = tuple(one for one in whole if one.role is Role.SHARD)
            self._epochs, self._found = epochs, (replicas, workers, shards, everybody)
        return self._found


class OpenCommands:
    """The commands without an answer of one state, by member and by kind. Tell it of each new one.

    `State.orders` stays the truth: a command that is answered or void leaves that, and is dropped
    here when somebody looks for it.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_member: defaultdict[MemberId, list[int]] = defaultdict(list)
        self._by_kind: defaultdict[type[object], list[int]] = defaultdict(list)
        for issued in state.orders.values():
            self.add(issued)

    def add(self, issued: IssuedCommand) -> None:
        self._by_member[issued.member].append(issued.id)
        self._by_kind[type(issued.order)].append(issued.id)

    def of_member(self, member: MemberId) -> list[IssuedCommand]:
        """Oldest first."""
        return self._open(self._by_member, member)

    def of_kind(self, kind: type[object]) -> list[IssuedCommand]:
        """Oldest first."""
        return self._open(self._by_kind, kind)

    def _open(self, index: dict[_Key, list[int]], key: _Key) -> list[IssuedCommand]:
        numbers = index.get(key)
        if numbers is None:
            return []
        found = [command for n in numbers if (command := self._state.orders.get(n)) is not None]
        if found:
            index[key] = [command.id for command in found]
        else:
            del index[key]
        return found


def _live(groups: dict[int, Group]) -> tuple[Group, ...]:
    return tuple(groups[index] for index in sorted(groups) if groups[index].live)
