"""One attempt's gradient on its way to one shard, which keeps it until an attempt is committed."""

from dataclasses import dataclass

from disttrain.layout import ELEMENT_TYPES
from disttrain.parameter_server import parts
from disttrain.parameter_server.link import ShardLink, refusal
from disttrain.parameter_server.messages import Identity
from disttrain.transport.header import Vector, Verb
from disttrain.transport.interface import Buffer, Destination, Message, Slice

_CHUNKS_AT_ONCE = 4
"""Sent before the answers of all shards are looked at again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A group's gradient for all shards. Nothing in its buffer may change until it is staged."""

    attempt: int
    """Its number, unique in the job."""
    evaluation: int
    group: int
    vector: Vector
    """What the model trains: its gradient has the same type and length."""
    gradient: Buffer
    """The sum over the samples of the group."""


class StageTask:
    """See `conversation.Task`. Begins anew when welcomed: staging twice changes nothing."""

    destination: Destination | None = None

    def __init__(self, link: ShardLink, identity: Identity, stage: Stage) -> None:
        self.is_done = False
        self.incarnation = 0
        """Of the shard that has it all."""
        self._link = link
        self._stage = stage
        self._sent = 0
        self._parts: list[parts.Part] = []
        self._header = identity.header(Verb.STAGE)._replace(
            sequence=stage.evaluation, lease=stage.attempt, lease_offset=stage.group
        )
        self._cut()

    @property
    def first_unacknowledged(self) -> int:
        """A staged gradient says nothing about pushes."""
        return 0

    def welcomed(self, message: Message) -> None:
        """Begin with the first chunk."""
        del message
        self._cut()

    def send_more(self) -> bool:
        """A few chunks; the transport holds back what the shard does not take."""
        first = self._sent
        for part in self._parts[first : first + _CHUNKS_AT_ONCE]:
            header = self._header._replace(
                vector=part.vector,
                element_type=ELEMENT_TYPES[part.vector],
                chunk=part.chunk,
                chunks=len(self._parts),
                first=part.first,
                count=part.elements,
            )
            if not self._link.send(header, Slice(self._stage.gradient, part.offset, part.nbytes)):
                break
            self._sent += 1
            # A shard is silent until it has everything.
            self._link.expect_answer()
        return self._sent > first

    def take(self, message: Message) -> None:
        """The end, or a refusal for good. Raises EvaluationOver and RequestRefused."""
        header = message.header
        if (header.sequence, header.lease) != (self._stage.evaluation, self._stage.attempt):
            return
        if header.verb == Verb.REFUSED:
            raise refusal(self._link, message)
        if header.verb == Verb.STAGED:
            self.is_done = True
            self.incarnation = header.incarnation

    def _cut(self) -> None:
        if self._link.welcome is not None:
            self._parts = parts.chunks(self._link.welcome, self._stage.vector)
        self._sent = 0
