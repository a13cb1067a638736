"""What a replica pushes to the parameter server: one thread sends to all shards at once.

A push sends chunks within a window, and goes on where the shard says.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from disttrain.coordinator.protocol.fields import Position
from disttrain.parameter_server.conversation import (
    ClientConfig,
    Conversation,
    Directory,
    Identity,
    ShardLink,
    Task,
    refusal,
)
from disttrain.parameter_server.errors import PushRefused
from disttrain.parameter_server.fetching import FetchClient, FetchResult
from disttrain.parameter_server.messages import UNKNOWN, Side, Version
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.placement import Range
from disttrain.state.share import Part, Share
from disttrain.state.vector import Vector
from disttrain.transport.header import ElementType, Header, Reason, Verb
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


__all__ = [
    "ClientConfig",
    "Directory",
    "FetchClient",
    "FetchResult",
    "Identity",
    "Push",
    "PushClient",
    "PushResult",
    "Stage",
    "Version",
    "Versions",
]

Versions: TypeAlias = tuple[Version, ...]
"""Of every shard that is spoken with, in their order."""

_OF_THIS_PUSH = frozenset({Reason.NOT_FINITE, Reason.TOO_STALE})
"""Refusals after which the next push may be fine."""

WINDOW_CHUNKS = 6
"""Chunks on their way to one shard; fewer than the transport queues: sending never blocks."""


@dataclass(kw_only=True, slots=True)
class Push:
    """One update for all shards. Nothing in its buffers may change until `push` returns."""

    sequence: int
    """Number of this push in the sender's incarnation: 1, 2, 3, ..."""
    gradient: Buffer
    """The whole flat gradient."""
    rounded_to: ElementType | None = None
    """What the gradient was rounded to; None: it is in the model's precision."""
    versions: Sequence[Version] = ()
    """Of every shard that is pushed to, as fetched, that the gradient was computed on.

    Empty: unknown.
    """
    scale: float = 1.0
    """Factor for the gradient: gradient-norm clipping."""
    samples: int = 0
    """Training samples behind it."""
    fragment: Fragment = WHOLE
    """What of the gradient is sent."""
    fragment_bytes: int = 0
    """How much that is; 0: the whole buffer."""
    local_steps: int = 0
    local_samples: int = 0
    """As in `Header`."""
    lease: int = 0
    lease_offset: int = 0
    """Position after it."""
    beside: Mapping[Vector, Buffer] = field(default_factory=dict)
    """What goes with the gradient, chunk by chunk: whole vectors, as long as it is."""
    buffers: Mapping[Vector, Buffer] = field(default_factory=dict)
    """The model's buffers after the step: whole vectors."""
    changed: Mapping[Vector, Sequence[Range]] | None = None
    """Parts of `buffers` that are to be sent; None: all of it."""

    @property
    def position(self) -> Position:
        return Position(lease=self.lease, offset=self.lease_offset)

    @property
    def nbytes(self) -> int:
        runs = self.runs().items()
        beside = sum(buffer.nbytes for buffer in self.beside.values())
        return (
            (self.fragment_bytes or self.gradient.nbytes)
            + beside
            + sum(run.count * vector.element_bytes for vector, ranges in runs for run in ranges)
        )

    def header(self, identity: Identity, place: int) -> Header:
        """What all chunks for a shard say of the push; `place`: see `ShardLink`."""
        version = self.versions[place] if place < len(self.versions) else UNKNOWN
        return identity.header(Verb.PUSH)._replace(
            sequence=self.sequence,
            version_incarnation=version.incarnation,
            version=version.count,
            scale=self.scale,
            samples=self.samples,
            lease=self.lease,
            lease_offset=self.lease_offset,
            fragment=0 if self.fragment == WHOLE else self.fragment.on_the_wire,
            local_steps=self.local_steps,
            local_samples=self.local_samples,
        )

    def runs(self) -> Mapping[Vector, Sequence[Range]]:
        if self.changed is not None:
            return {
                vector: self.changed[vector] for vector in self.changed if vector in self.buffers
            }
        return {vector: [Range(first=0, end=1 << 60)] for vector in self.buffers}

    def parts(self, share: Share) -> list[Part]:
        """Its chunks for one holder: all parameters, then the parts of the buffers to be sent.

        Before each chunk of the gradient comes what goes with it: that is applied as it arrives.
        """
        runs = self.runs()
        buffers = sorted(runs, key=share.placement.number)
        trained = share.trained.rounded(self.rounded_to)
        vectors = [share.fragment_chunks(v, self.fragment) for v in (*self.beside, trained)]
        found = [part for group in zip(*vectors, strict=True) for part in group]
        return found + [part for vector in buffers for part in share.pieces(vector, runs[vector])]


@dataclass(frozen=True, kw_only=True, slots=True)
class PushResult:
    """What one shard answered."""

    shard: int
    version: Version
    """After the push."""
    staleness: int
    """Updates between the gradient's version and the one it met; -1: unknown."""


class PushTask(Task):
    def __init__(self, link: ShardLink, identity: Identity, push: Push) -> None:
        self.first_unacknowledged = push.sequence
        self.result = PushResult(shard=link.shard, version=UNKNOWN, staleness=-1)
        self.refused: PushRefused | None = None
        self._link = link
        self._push = push
        self._parts: list[Part] = []
        self._sent = 0
        self._acknowledged = 0
        self._header = push.header(identity, link.place)
        self._cut()

    def welcomed(self, message: Message) -> None:
        """Go on at the first chunk that is not applied."""
        header = message.header
        if header.sequence < self._push.sequence:
            return
        self._cut()
        if header.sequence > self._push.sequence:
            self._finish(header)
        self._sent = self._acknowledged = header.chunk

    def send_more(self) -> bool:
        end = min(len(self._parts), self._acknowledged + WINDOW_CHUNKS)
        first = self._sent
        while self._sent < end and self._send(self._parts[self._sent]):
            self._sent += 1
        return self._sent > first

    def take(self, message: Message) -> None:
        header = message.header
        if header.sequence != self._push.sequence:
            return
        if header.verb == Verb.REFUSED:
            self._refused(message)
        if header.verb != Verb.PUSHED:
            return
        self._acknowledged = max(self._acknowledged, header.chunk + 1)
        if header.chunk + 1 == header.chunks:
            self._finish(header)

    def _refused(self, message: Message) -> None:
        error = refusal(self._link, message)
        if message.header.reason not in _OF_THIS_PUSH:
            raise error
        self.refused = PushRefused(str(error), Reason(message.header.reason))
        self.is_done = True

    def _finish(self, header: Header) -> None:
        if header.verb == Verb.WELCOME and header.reason in _OF_THIS_PUSH:
            sentence = f"shard {self._link.shard} refused push {self._push.sequence}"
            self.refused = PushRefused(sentence, Reason(header.reason))
        self.is_done = True
        self.result = PushResult(
            shard=self._link.shard,
            version=Version(header.version_incarnation, header.version),
            staleness=header.staleness,
        )

    def _cut(self) -> None:
        if self._link.share is not None:
            self._parts = self._push.parts(self._link.share)

    def _send(self, part: Part) -> bool:
        vector, push = part.vector, self._push
        if vector.is_trained:
            buffer = push.gradient
        else:
            buffer = push.buffers[vector] if vector.is_of_a_model else push.beside[vector]
        header = self._header._replace(
            vector=self._link.placement.number(vector),
            element_type=vector.element_type,
            chunk=self._sent,
            chunks=len(self._parts),
            first=part.first,
            count=part.count,
        )
        return self._link.send(header, Slice(buffer, part.offset, part.nbytes))


class PushClient(Conversation):
    """Used by one thread, except `stop`."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config, Side.PUSH)
        self._uploads = 0
        self._pushed = 0
        """The latest number."""

    def push(self, push: Push) -> list[PushResult]:
        """Blocks until every shard has answered, restarts of shards included.

        Numbers grow; those between are left out. Raises Fenced (end the process), PushRefused (all
        shards have answered; the next push may be fine), RequestRefused and ShardsAway.
        """
        if push.sequence > self._pushed + 1:
            # Shards wait for the next number, until they are told another one.
            for link in self.links.values():
                link.greet_again()
        self._pushed = push.sequence
        tasks = self.ask(lambda link: PushTask(link, self._config.identity, push))
        refused = [task.refused for task in tasks if task.refused is not None]
        if refused:
            # What is not finite for one shard is of no use to any.
            raise min(refused, key=lambda error: error.reason)
        return [task.result for task in tasks]

    def stage(self, stage: Stage) -> tuple[int, ...]:
        """Send a group's gradient; the shards' incarnations, when every shard has all of it.

        Blocks until then, restarts of shards included. Raises EvaluationOver (drop the attempt),
        Fenced, RequestRefused and ShardsAway.
        """
        tasks = self.ask(lambda link: StageTask(link, self._config.identity, stage))
        return tuple(task.incarnation for task in tasks)

    def upload(self, values: Mapping[Vector, Buffer], shards: Collection[int]) -> None:
        """Send the initial values to these shards; blocks until they have all of them."""
        self._uploads += 1
        number = self._uploads
        self.ask(lambda link: UploadTask(link, self._config.identity, number, values), shards)
