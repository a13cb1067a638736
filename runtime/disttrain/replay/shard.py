"""One replayed shard: the real state and update rules, fed with chunks instead of messages."""

import numpy as np
import torch

from disttrain.holder.values import Values
from disttrain.parameter_server import strategies
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.ledger import Kind
from disttrain.parameter_server.messages import Identity
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.state import Answer, ShardState
from disttrain.replay.comparing import Differences
from disttrain.replay.errors import RecordContradicted
from disttrain.replay.exchange import GivenChunk, PushUnderWay
from disttrain.replay.recording import Recording, ShardLog
from disttrain.replica.flat_vector import FlatVector
from disttrain.state.placement import Placement
from disttrain.state.share import Part, Share
from disttrain.state.vector import Vector
from disttrain.transport.header import Header, Verb
from disttrain.transport.interface import Buffer


class ReplayedShard:
    """Follows the log of one shard. Values are there from the beginning, as after an upload."""

    def __init__(self, recording: Recording, log: ShardLog, placement: Placement) -> None:
        self.index = log.index
        self.name = f"shard-{log.index}"
        self.log = log.records
        self.position = 0
        """Records of the log that are done or being done."""
        self.is_busy = False
        """Within a record: the next one must wait."""
        self._threads = recording.shard_threads
        self.share = Share(placement, log.index, recording.chunk_bytes)
        state = ShardState(index=log.index, incarnation=log.incarnation)
        no_records = Records(incarnation=log.incarnation)
        self.shard = Shard(strategies.stages(recording.spec, state, no_records))
        self.shard.configure(placement, recording.chunk_bytes)

    @property
    def state(self) -> ShardState:
        """Version, table of pushes, values."""
        return self.shard.state

    @property
    def values(self) -> Values:
        """The shard's range of every vector."""
        values = self.state.values
        assert values is not None  # noqa: S101  configured from the beginning
        return values

    @property
    def is_over(self) -> bool:
        """Whether the log has ended."""
        return self.position >= len(self.log)

    def begin_with(self, initial: dict[Vector, Buffer]) -> None:
        """Take over this shard's part of the initial values."""
        for vector, buffer in initial.items():
            held, own = self.share.range_of(vector), self.values.tensor(vector)
            own.copy_(FlatVector(buffer, own.dtype).host[held.first : held.end])
        self.state.is_initialised = True

    def carry_out(self, record: np.void) -> None:
        """An admission or a fence."""
        life = sender(record)
        if record["kind"] == Kind.ADMITTED:
            self.shard.admit(life)
        elif record["kind"] == Kind.FENCED:
            self.shard.fence(life)

    def apply(self, record: np.void, under_way: PushUnderWay) -> None:
        """The chunk of a push that the record names, in the way of a message that has arrived."""
        part = self._part(record, under_way)
        self._measure(part, under_way)
        self._count_replicas(record)
        buffer = _source(part.vector, under_way)
        payload = buffer.view[part.offset : part.offset + part.nbytes].toreadonly()
        header = self._header(record, under_way, part)
        verbs = [answer.header.verb for answer in self._handle(header, payload)]
        if (Verb.REFUSED in verbs) != (record["kind"] == Kind.REFUSED):
            message = (
                f"{self.name} answers chunk {part.chunk} of push {record['sequence']} of "
                f"replica-{record['sender']} differently than in the run"
            )
            raise RecordContradicted(message)

    def compare(self, record: np.void, differences: Differences) -> None:
        """Version and staleness of a complete push."""
        life = sender(record)
        state = self.state.deliveries.of(life.sender, life.incarnation)
        replayed = (state.sequence, state.version, state.staleness)
        recorded = tuple(int(record[name]) for name in ("sequence", "version", "staleness"))
        differences.updates += 1
        if replayed != recorded:
            differences.add(
                f"{self.name}: push, version and staleness of replica-{life.sender} are "
                f"{replayed}, the run's were {recorded}"
            )

    def chunk(self, record: np.void) -> GivenChunk:
        """The chunk that a fetch is given now; its values may change afterwards."""
        self._count_replicas(record)
        vector = self.share.placement.vector(int(record["vector"]))
        life = sender(record)
        header = Identity(life.sender, life.incarnation).header(Verb.FETCH)
        asked = header._replace(
            receiver_incarnation=self.state.incarnation,
            sequence=int(record["sequence"]),
            vector=int(record["vector"]),
            chunk=int(record["chunk"]),
            count=1,
        )
        (answer,) = self._handle(asked, memoryview(b""))
        if vector is None or answer.header.verb != Verb.FETCHED:
            message = f"{self.name} gave out vector {record['vector']}, which the run did not have"
            raise RecordContradicted(message)
        return GivenChunk(
            fetch=asked.sequence,
            shard=self.index,
            vector=vector,
            chunk=asked.chunk,
            first=answer.header.first,
            version=self.state.version,
            samples=self.state.samples,
            content=memoryview(answer.payload),
        )

    def _count_replicas(self, record: np.void) -> None:
        """As many as there were; an older version recorded it of some events alone."""
        self.state.live_replicas = int(record["live_replicas"]) or self.state.live_replicas

    def _handle(self, header: Header, payload: memoryview) -> list[Answer]:
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            return list(self.shard.handle(header, payload))
        finally:
            torch.set_num_threads(before)

    def _part(self, record: np.void, under_way: PushUnderWay) -> Part:
        pieces = under_way.push.parts(self.share)
        number = int(record["chunk"])
        fits = len(pieces) == record["chunks"] and number < len(pieces)
        if not fits:
            message = (
                f"push {record['sequence']} of replica-{record['sender']} has {len(pieces)} "
                f"chunks for {self.name}, the run's had {record['chunks']}"
            )
            raise RecordContradicted(message)
        return pieces[number]._replace(chunk=number)

    def _header(self, record: np.void, under_way: PushUnderWay, part: Part) -> Header:
        life = sender(record)
        of_push = under_way.push.header(Identity(life.sender, life.incarnation), self.index)
        return of_push._replace(
            receiver_incarnation=self.state.incarnation,
            vector=self.share.placement.number(part.vector),
            element_type=part.vector.element_type,
            chunk=part.chunk,
            chunks=int(record["chunks"]),
            first=part.first,
            count=part.count,
        )

    def _measure(self, part: Part, under_way: PushUnderWay) -> None:
        """How far the parameters that the gradient meets are from those it was computed on."""
        if not part.vector.is_trained or not part.count:
            return
        met = self.values.part(part)
        moved = met - under_way.computed_on[part.first : part.first + part.count].to(met.device)
        under_way.squared_distance += float(torch.dot(moved, moved))
        under_way.squared_norm += float(torch.dot(met, met))


def sender(record: np.void) -> SenderLife:
    """Whose chunk or push a record is about."""
    return SenderLife(int(record["sender"]), int(record["incarnation"]))


def _source(vector: Vector, under_way: PushUnderWay) -> Buffer:
    push = under_way.push
    return push.gradient if vector.is_trained else push.buffers[vector]
