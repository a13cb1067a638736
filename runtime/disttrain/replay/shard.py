"""One replayed shard: production's, which serves what replicas ask for in the order of its log."""

import numpy as np

from disttrain.audit.evidence import Incarnation
from disttrain.holder.values import Values
from disttrain.job.spec import Spec
from disttrain.parameter_server import strategies
from disttrain.parameter_server.deliveries import Decision, SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.ledger import Kind
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.serving import Serving
from disttrain.parameter_server.shard import Shard
from disttrain.replay.comparing import Differences, RecordContradicted
from disttrain.replay.recording import Recording
from disttrain.replay.wires import LOOK_AGAIN_SECONDS, Wires
from disttrain.replica.flat_vector import FlatVector
from disttrain.state.placement import Placement
from disttrain.state.vector import Vector
from disttrain.transport.header import Header, Verb
from disttrain.transport.interface import Buffer, Listener, Request

_VAIN_SECONDS = 5 * LOOK_AGAIN_SECONDS
"""Of virtual time in which no shard served anything: what is waited for does not come."""
_Name = tuple[SenderIncarnation, Verb, int, int, int]
"""Of a chunk: whose, PUSH or FETCH, number of the push or fetch, vector, chunk."""


class ShardInMemory:
    """Production's, without a process. Values are there from the beginning, as after an upload."""

    def __init__(
        self,
        spec: Spec,
        state: ShardState,
        placement: Placement,
        listener: Listener,
        *,
        chunk_bytes: int,
    ) -> None:
        """`chunk_bytes`: as of `Share`."""
        self.records = Records(incarnation=state.incarnation)
        self.shard = Shard(strategies.stages(spec, state, self.records))
        self.shard.configure(placement, chunk_bytes)
        self.listener = listener
        self.serving = Serving(listener, self.shard)

    @property
    def state(self) -> ShardState:
        return self.shard.state

    @property
    def values(self) -> Values:
        values = self.state.values
        assert values is not None  # noqa: S101  configured from the beginning
        return values

    def begin_with(self, initial: dict[Vector, Buffer]) -> None:
        """Take over this shard's part of the initial values."""
        for vector, buffer in initial.items():
            held, own = self.values.share.range_of(vector), self.values.tensor(vector)
            own.copy_(FlatVector(buffer, own.dtype).host[held.first : held.end])
        self.shard.initialise()


class ReplayedShard(ShardInMemory):
    """Follows the log of one shard."""

    def __init__(
        self, recording: Recording, log: Incarnation, placement: Placement, wires: Wires
    ) -> None:
        self.index = log.index
        self.name = log.process
        self.log = log.records
        self.position = 0
        """Records of the log that are done."""
        self._wires = wires
        state = ShardState(
            index=log.index,
            incarnation=log.incarnation,
            train_samples=recording.data.samples,
        )
        listener, chunk_bytes = wires.listen(log.index), recording.chunk_bytes
        super().__init__(recording.spec, state, placement, listener, chunk_bytes=chunk_bytes)
        self._waiting: dict[_Name, Request] = {}
        """What replicas have asked for, chunk by chunk, until the log names it."""

    @property
    def is_over(self) -> bool:
        return self.position >= len(self.log)

    def carry_out(self, record: np.void) -> None:
        if record["kind"] == Kind.ADMITTED:
            self.shard.admit(sender(record))
        elif record["kind"] == Kind.FENCED:
            self.shard.fence(sender(record))
        elif record["kind"] == Kind.MERGED:
            self.shard.stage.finish(int(record["chunk"]))

    def wait_for(self, record: np.void) -> Request:
        """The chunk that the record names, once a replica has asked for it."""
        incarnation, number, chunk = sender(record), int(record["sequence"]), int(record["chunk"])
        verb = Verb.FETCH if record["kind"] == Kind.CHUNK_FETCHED else Verb.PUSH
        name = (incarnation, verb, number, int(record["vector"]), chunk)
        while (request := self._asked_for(name)) is None:
            if not self.receive(LOOK_AGAIN_SECONDS) and self._wires.idle_seconds > _VAIN_SECONDS:
                raise RecordContradicted(
                    f"replica-{incarnation.sender} "
                    f"(incarnation {incarnation.incarnation}) does not come to "
                    f"{verb.name.lower()} {number}, chunk {chunk} of vector {record['vector']}, "
                    f"which is next in the log of {self.name} "
                    f"(record {self.position} of {len(self.log)})"
                )
        return request

    def receive(self, seconds: float) -> bool:
        """Answer a greeting, or keep what is asked for until the log names it.

        False: nothing arrived for so many seconds of virtual time.
        """
        request = self.listener.receive(seconds)
        if request is not None:
            self._sort(request)
        return request is not None

    def serve(self, request: Request, record: np.void) -> None:
        """Apply or give out a chunk that the record names.

        Raises RecordContradicted if that ends otherwise than in the run, or nobody hears of it.
        """
        header = request.header
        # As many as there were; an older version recorded it of some events alone.
        self.state.live_replicas = int(record["live_replicas"]) or self.state.live_replicas
        refused, unanswered = self.shard.refused.total(), self.serving.unanswered
        self.serving.serve(request)
        if (self.shard.refused.total() > refused) != (record["kind"] == Kind.REFUSED):
            raise RecordContradicted(f"{self._answers(header)} differently than in the run")
        if self.serving.unanswered > unanswered:
            raise RecordContradicted(f"{self._answers(header)}, which does not hear of it")
        self._wires.progressed()

    def compare(self, record: np.void, differences: Differences) -> None:
        incarnation = sender(record)
        state = self.state.deliveries.of(incarnation.sender, incarnation.incarnation)
        replayed = (state.sequence, state.version, state.staleness)
        recorded = tuple(int(record[name]) for name in ("sequence", "version", "staleness"))
        differences.updates += 1
        if replayed != recorded:
            differences.found.append(
                f"{self.name}: push, version and staleness of replica-{incarnation.sender} are "
                f"{replayed}, the run's were {recorded}"
            )

    def _sort(self, request: Request) -> None:
        """What asks for several chunks asks for each: the log names them one by one."""
        header = request.header
        incarnation = SenderIncarnation.of(header)
        if header.verb == Verb.PUSH:
            name = (incarnation, Verb.PUSH, header.sequence, header.vector, header.chunk)
            self._waiting[name] = request
        elif header.verb == Verb.FETCH:
            for chunk in range(header.chunk, header.chunk + header.count):
                name = (incarnation, Verb.FETCH, header.sequence, header.vector, chunk)
                one = header._replace(chunk=chunk, count=1)
                self._waiting[name] = request._replace(header=one)
        # A fenced incarnation learns nothing here: other shards may have more of it in their logs.
        elif self.state.deliveries.standing(*incarnation) is not Decision.OLD_INCARNATION:
            self.serving.serve(request)

    def _asked_for(self, name: _Name) -> Request | None:
        """Who has given a connection up does not hear of it, and asks again in another one."""
        request = self._waiting.pop(name, None)
        return request if request and self._wires.is_connected(request.peer) else None

    def _answers(self, header: Header) -> str:
        verb = Verb(header.verb).name.lower()
        return (
            f"{self.name} answers chunk {header.chunk} of {verb} {header.sequence} of "
            f"replica-{header.sender}"
        )


def sender(record: np.void) -> SenderIncarnation:
    """Whose chunk or push a record is about."""
    return SenderIncarnation(int(record["sender"]), int(record["incarnation"]))
