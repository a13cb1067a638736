"""The living members in the order of their indices, sorted once for each epoch. No I/O."""

from collections.abc import Sequence

from disttrain.coordinator.journal.state import Life, State

_Known = tuple[int, tuple[Life, ...]]
"""Epoch, and who lived in it."""


class LiveMembers:
    """Of one state, in which lives begin and end by entries only."""

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


def _live(lives: dict[int, Life]) -> tuple[Life, ...]:
    return tuple(lives[index] for index in sorted(lives) if lives[index].live)
