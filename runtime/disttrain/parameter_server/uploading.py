"""The upload of the initial values to one shard."""

from collections.abc import Mapping

from disttrain.layout import ELEMENT_TYPES
from disttrain.parameter_server import parts
from disttrain.parameter_server.link import ShardLink, refusal
from disttrain.parameter_server.messages import Identity
from disttrain.transport.header import Vector, Verb
from disttrain.transport.interface import Buffer, Destination, Message, Slice

_CHUNKS_AT_ONCE = 4
"""Sent before the answers of all shards are looked at again."""


class UploadTask:
    """See `conversation.Task`. Begins anew after a restart: the shard keeps nothing unfinished."""

    destination: Destination | None = None

    def __init__(
        self, link: ShardLink, identity: Identity, values: Mapping[Vector, Buffer]
    ) -> None:
        self.is_done = False
        self._link = link
        self._values = values
        self._header = identity.header(Verb.UPLOAD)
        self._parts: list[parts.Part] = []
        self._sent = 0

    @property
    def first_unacknowledged(self) -> int:
        """An upload says nothing about pushes."""
        return 0

    def welcomed(self, message: Message) -> None:
        """Begin with the first chunk."""
        del message
        if self._link.welcome is not None:
            self._parts = parts.all_chunks(self._link.welcome, self._values)
        self._sent = 0

    def send_more(self) -> bool:
        """A few chunks; the transport holds back what the shard does not take."""
        first = self._sent
        for part in self._parts[first : first + _CHUNKS_AT_ONCE]:
            header = self._header._replace(
                vector=part.vector,
                element_type=ELEMENT_TYPES[part.vector],
                chunk=part.chunk,
                chunks=sum(other.vector is part.vector for other in self._parts),
                first=part.first,
                count=part.elements,
            )
            payload = Slice(self._values[part.vector], part.offset, part.nbytes)
            if not self._link.send(header, payload):
                break
            self._sent += 1
            # A shard is silent until it has everything.
            self._link.expect_answer()
        return self._sent > first

    def take(self, message: Message) -> None:
        """The end, or a refusal for good."""
        if message.header.verb == Verb.REFUSED:
            raise refusal(self._link, message)
        self.is_done = message.header.verb == Verb.UPLOADED
