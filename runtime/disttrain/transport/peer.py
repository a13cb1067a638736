"""A connection at a listener: how it is found out whose it is, and who only says so."""

import select
from collections.abc import Mapping
from dataclasses import dataclass

from disttrain.job.identity import Identity
from disttrain.telemetry import logs
from disttrain.transport import tls
from disttrain.transport.config import TransportConfig
from disttrain.transport.errors import Refusal, UnreadableStream
from disttrain.transport.framing import Inbox, Outbox
from disttrain.transport.header import Role
from disttrain.transport.interface import Listener
from disttrain.transport.stream import Stream

LOG = logs.get(__name__)

_CONNECT_TO: Mapping[Role, frozenset[Role]] = {
    Role.COORDINATOR: frozenset({Role.SHARD, Role.REPLICA, Role.LAUNCHER}),
    Role.SHARD: frozenset({Role.REPLICA}),
}
"""By the role of a listener: whose certificates it takes."""
_MOST_TOLD = 64
"""Sentences about impostors in the log; further ones are only counted."""


@dataclass(slots=True, eq=False)
class Peer:
    """One connection."""

    name: bytes
    stream: Stream
    inbox: Inbox
    outbox: Outbox
    since: float
    """When it was accepted; once it has greeted, when anything came from it last."""
    identity: Identity | None = None
    """What its certificate says; None without TLS."""
    role: Role | None = None
    """That of the certificate."""
    has_shaken_hands: bool = False
    is_known: bool = False
    """It has greeted."""
    is_queued: bool = False
    """In the queue of those from which something may be read."""
    events: int = select.EPOLLIN

    def introduce(self, config: TransportConfig) -> bool:
        """Whether it has shaken hands and greeted. Raises ConnectionLost, UnreadableStream."""
        if not self.has_shaken_hands:
            if not self.stream.shake_hands():
                return False
            self.has_shaken_hands = True
            self._identify(config)
        return self.inbox.is_greeted(self.stream)

    def _identify(self, config: TransportConfig) -> None:
        if not self.stream.is_encrypted:
            return
        self.identity = tls.identity_of(self.stream, config)
        self.role = tls.role_of(self.identity)
        if self.role not in _CONNECT_TO.get(config.role, ()):
            detail = f"{self.identity} connects to {config.role.name}"
            raise UnreadableStream(Refusal.ROLE, detail)


class Impostors:
    """Counts and logs those whose certificate does not speak for whom they said they are.

    Belongs to the listener's thread.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._told: set[str] = set()

    def note(self, why: str) -> None:
        """`why` names both; each sentence is logged once."""
        self._listener.refused[Refusal.IMPOSTOR] += 1
        if why not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(why)
            LOG.warning("request refused", reason=why)
