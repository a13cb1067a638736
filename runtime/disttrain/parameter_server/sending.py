"""Whole vectors on their way to one shard: initial values, or a gradient that it keeps."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from disttrain.parameter_server.conversation import Task
from disttrain.parameter_server.link import ShardLink, refusal
from disttrain.parameter_server.messages import Identity
from disttrain.state.share import Part
from disttrain.state.vector import Vector
from disttrain.transport.header import Header, Verb
from disttrain.transport.interface import Buffer, Message, Slice

_CHUNKS_AT_ONCE = 4
"""Sent before the answers of all shards are looked at again."""


class Sending(Task):
    """All over again after each welcome: a shard says nothing before it has every chunk."""

    def __init__(self, link: ShardLink, header: Header, values: Mapping[Vector, Buffer]) -> None:
        self._link = link
        self._header = header
        self._values = values
        self._parts: list[Part] = []
        self._chunks: Counter[Vector] = Counter()
        self._sent = 0

    def begin(self) -> None:
        """Begin with the first chunk; nothing is sent before the shard's first welcome."""
        if self._link.share is not None:
            self._parts = self._link.share.all_chunks(self._values)
            self._chunks = Counter(part.vector for part in self._parts)
        self._sent = 0

    def welcomed(self, message: Message) -> None:
        del message
        self.begin()

    def send_more(self) -> bool:
        """A few chunks; the transport holds back what the shard does not take."""
        first = self._sent
        for part in self._parts[first : first + _CHUNKS_AT_ONCE]:
            payload = Slice(self._values[part.vector], part.offset, part.nbytes)
            if not self._link.send(self._header_of(part), payload):
                break
            self._sent += 1
            # A shard is silent until it has everything.
            self._link.expect_answer()
        return self._sent > first

    def _header_of(self, part: Part) -> Header:
        return self._header._replace(
            vector=self._link.placement.number(part.vector),
            element_type=part.vector.element_type,
            chunk=part.chunk,
            chunks=self._chunks[part.vector],
            first=part.first,
            count=part.count,
        )


class UploadTask(Sending):
    """The initial values of the model."""

    def __init__(
        self, link: ShardLink, identity: Identity, number: int, values: Mapping[Vector, Buffer]
    ) -> None:
        """`number` of the upload in the sender's life."""
        super().__init__(link, identity.header(Verb.UPLOAD)._replace(sequence=number), values)

    def take(self, message: Message) -> None:
        if message.header.verb == Verb.REFUSED:
            raise refusal(self._link, message)
        # What was sent twice is answered twice: an answer may be to an earlier upload.
        is_answer = message.header.verb == Verb.UPLOADED
        self.is_done = is_answer and message.header.sequence == self._header.sequence


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


class StageTask(Sending):
    """One attempt's gradient, until that is committed or dropped; twice is as once."""

    def __init__(self, link: ShardLink, identity: Identity, stage: Stage) -> None:
        header = identity.header(Verb.STAGE)._replace(
            sequence=stage.evaluation, lease=stage.attempt, lease_offset=stage.group
        )
        super().__init__(link, header, {stage.vector: stage.gradient})
        self.incarnation = 0
        """Of the shard that has it all."""
        self.begin()

    def take(self, message: Message) -> None:
        header = message.header
        if (header.sequence, header.lease) != (self._header.sequence, self._header.lease):
            return
        if header.verb == Verb.REFUSED:
            raise refusal(self._link, message)
        if header.verb == Verb.STAGED:
            self.is_done = True
            self.incarnation = header.incarnation
