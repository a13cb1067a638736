"""Carries messages between a listener and a shard, and remembers which connections are over."""

from collections import OrderedDict
from collections.abc import Mapping

from disttrain.job import identity
from disttrain.job.identity import Identity, Speaker
from disttrain.parameter_server.deliveries import Decision
from disttrain.parameter_server.holder_side import Refused
from disttrain.parameter_server.messages import Side
from disttrain.parameter_server.shard import Shard
from disttrain.transport.header import Header, Reason, Verb
from disttrain.transport.interface import Listener, Request
from disttrain.transport.peer import Impostors

_REMEMBERED = 4096
REQUESTS_AT_ONCE = 64
"""Handled before anything else gets its turn."""


class Serving:
    """Belongs to the shard's thread."""

    def __init__(self, listener: Listener, shard: Shard) -> None:
        self.unanswered = 0
        """Answers that could not be sent: the peer is gone or does not read."""
        self.pushed_bytes = 0
        self.fetched_bytes = 0
        """Payload since the process started."""
        self.instances: Mapping[int, tuple[str, ...]] = {}
        """Of the replicas that are served, by index and partition, as their certificates say."""
        self._listener = listener
        self._shard = shard
        self._peers: dict[tuple[int, int, int], tuple[int, bytes]] = {}
        """By sender, incarnation and side: the number of the latest connection, and its peer."""
        self._over: OrderedDict[bytes, None] = OrderedDict()
        self._impostors = Impostors(listener)

    def serve_waiting(self) -> int:
        """Handle requests that have arrived, up to a bound; how many there were."""
        for handled in range(REQUESTS_AT_ONCE):
            request = self._listener.receive(0.0)
            if request is None:
                return handled
            self.serve(request)
        return REQUESTS_AT_ONCE

    def forget(self, sender: int, incarnation: int) -> None:
        """The connections of this incarnation of a sender, and of earlier ones, are over."""
        for key in [k for k in self._peers if k[0] == sender and k[1] <= incarnation]:
            self._end(self._peers.pop(key)[1])

    def serve(self, request: Request) -> None:
        """Handle one, unless its connection is over."""
        if request.peer in self._over:
            # A sender that connected again may still have requests in the old connection. To answer
            # such a FETCH would write into memory that the sender uses for something else by now.
            return
        header = request.header
        if request.identity is not None and (why := self._impostor(request.identity, header)):
            self._impostors.note(why)
            answer = self._shard.state.refuse(header, Refused(Reason.NOT_ALLOWED, why))
            self._listener.reply(request, answer.header, answer.payload)
            return
        if header.verb in (Verb.PUSH, Verb.STAGE):
            self.pushed_bytes += request.payload.nbytes
        for answer in self._shard.handle(header, request.payload):
            if answer.header.verb == Verb.WELCOME:
                self._replace_connection(request.peer, header)
            if answer.header.verb == Verb.FETCHED:
                self.fetched_bytes += len(answer.payload)
            if not self._listener.reply(request, answer.header, answer.payload):
                self.unanswered += 1

    def _impostor(self, sender: Identity, header: Header) -> str:
        """Why the holder of a certificate may not speak as this sender; empty if it may."""
        values = self._shard.state.values
        # It speaks with the process alone that has what is trained here.
        partition = sender.partition if values is None else values.share.trained.partition
        instance = None
        standing = self._shard.state.deliveries.standing(header.sender, header.incarnation)
        if standing is Decision.APPLY and (known := self.instances.get(header.sender)):
            # Of other incarnations it is not known whose they are; nothing is taken from them.
            instance = known[partition] if partition < len(known) else None
        return identity.mismatch(sender, Speaker(sender.role, header.sender, partition, instance))

    def _replace_connection(self, peer: bytes, header: Header) -> None:
        """Only of a sender that the shard has welcomed; of each, the living incarnation is kept."""
        if header.count not in set(Side):
            return
        self.forget(header.sender, header.incarnation - 1)
        key = (header.sender, header.incarnation, header.count)
        number, before = self._peers.get(key, (0, peer))
        if header.first < number:
            # It was on its way for long: its sender has given this connection up since.
            self._end(peer)
            return
        if before != peer:
            self._end(before)
        self._peers[key] = (header.first, peer)

    def _end(self, peer: bytes) -> None:
        self._listener.forget(peer)
        self._over[peer] = None
        while len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)
