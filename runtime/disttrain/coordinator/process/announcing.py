"""When members hear unasked of others that joined or ended. Pure but for what it remembers."""

from collections.abc import Iterator

from disttrain.coordinator.decisions import news
from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.protocol import payloads
from disttrain.transport.header import Role

_PAUSE_SECONDS_PER_MEMBER = 0.001
"""So that a thousand who join one after the other are not told of to a thousand each time."""


class Announcing:
    """Who is not reached by it hears the same in the reply to a heartbeat."""

    def __init__(self, machine: Coordinator) -> None:
        self._machine = machine
        self._told = {Role.REPLICA: 0, Role.SHARD: 0}
        """Epochs."""
        self._next = 0.0

    def due(self, now: float, members: int) -> Iterator[tuple[Role, bytes]]:
        """What has to be said now to all of `members` that are of this role."""
        if now < self._next:
            return
        for role, told in self._told.items():
            epoch = news.epoch_for(self._machine.state, role)
            if epoch == told:
                continue
            self._told[role] = epoch
            self._next = now + members * _PAUSE_SECONDS_PER_MEMBER
            yield role, payloads.encode_reply(self._machine.news(role, now))
