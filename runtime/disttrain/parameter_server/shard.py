"""What a shard of every strategy answers. No socket, no clock; one thread."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from disttrain.checkpoint.errors import CheckpointError, Corrupt, NoCheckpoint
from disttrain.coordinator.protocol import orders
from disttrain.holder.errors import WrongSnapshot
from disttrain.holder.values import Values
from disttrain.holder.writing import Cut
from disttrain.parameter_server.batch_figures import BatchFigures
from disttrain.parameter_server.deliveries import Decision, Delivered, SenderLife
from disttrain.parameter_server.ledger import Kind
from disttrain.parameter_server.messages import MOST_CHUNKS_PER_FETCH, Welcome, encode_welcome
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.state import REASONS, Answer, ShardState
from disttrain.parameter_server.upload import UploadProgress, store_chunk
from disttrain.state.placement import Placement
from disttrain.state.share import Part, Share
from disttrain.state.vector import Vector
from disttrain.telemetry import logs
from disttrain.transport.header import Header, Reason, Role, Verb

LOG = logs.get(__name__)

Answers: TypeAlias = Iterable[Answer]
Handler: TypeAlias = Callable[[Header, memoryview], Answers]
Problem: TypeAlias = tuple[Reason, str]
"""Why a request is not carried out, as a reason and as a sentence."""


class Shard(ABC):
    """Introductions, initial values and fetches; what changes the values is a strategy's own."""

    def __init__(self, state: ShardState, records: Records) -> None:
        self.state = state
        self.refused: Counter[str] = Counter()
        """Requests not carried out, by the lower-case name of the reason."""
        self.records = records
        self._upload: UploadProgress | None = None
        self._handlers: dict[int, Handler] = {
            Verb.HELLO: self._hello,
            Verb.UPLOAD: self._store,
            Verb.FETCH: self._fetch,
        }

    @property
    def figures(self) -> BatchFigures:
        """What a batch method takes, if the strategy has one."""
        return BatchFigures()

    @property
    def keeps_updates(self) -> bool:
        """Whether what was applied since the last checkpoint is of use to this shard's next life.

        With a batch method it is not: all shards go on from one cut, a checkpoint.
        """
        return True

    @abstractmethod
    def make_room(self, share: Share) -> Values:
        """The values that a job begins with: zeros, or what the strategy says."""

    @abstractmethod
    def protect(self, cut: Cut | None) -> None:
        """Tell the cut of what is about to change from now on; None: it is complete."""

    def carry_out(self, order: orders.Order) -> orders.Result:
        """An order that is the strategy's own."""
        return orders.OrderFailed(message=f"a shard does not know {order.kind}")

    def reload(self, checkpoint: int) -> RestoredShard:
        """This shard's part of a checkpoint that was committed. Takes long; any thread.

        Raises CheckpointError, WrongSnapshot.
        """
        message = f"this shard does not return to checkpoint {checkpoint}"
        raise WrongSnapshot(message)

    def return_to(self, checkpoint: int, read: Callable[[], RestoredShard]) -> orders.Result:
        """Take over what `reload` has read; `read` gives that, or raises what was raised there."""
        try:
            self._take_over(checkpoint, read())
        except (CheckpointError, WrongSnapshot) as error:
            LOG.error("cannot return to a checkpoint", number=checkpoint, error=error)
            is_damaged = isinstance(error, Corrupt | NoCheckpoint)
            why = orders.WhyFailed.DAMAGED if is_damaged else orders.WhyFailed.OTHER
            return orders.OrderFailed(message=str(error)[:1000], why=why)
        return orders.Done()

    def _take_over(self, checkpoint: int, restored: RestoredShard) -> None:
        del checkpoint
        self.restore(restored)

    def configure(self, placement: Placement, chunk_bytes: int) -> None:
        """Learn the placement and make room. Said again, it changes nothing."""
        if self.state.values is None:
            self.state.values = self.make_room(Share(placement, self.state.index, chunk_bytes))

    def restore(self, restored: RestoredShard) -> None:
        """Begin with the values of a checkpoint."""
        state = self.state
        state.values = restored.values
        state.count, state.samples = restored.version, restored.samples
        state.deliveries.restore(restored.delivered)
        state.is_initialised = True

    def admit(self, life: SenderLife) -> None:
        """This life of a replica may push and fetch, earlier ones may not."""
        self.state.deliveries.admit(life.sender, life.incarnation)
        self.records.event(Kind.ADMITTED, life)

    def admit_only(self, lives: Mapping[int, int]) -> None:
        """These lives of replicas may push and fetch, all others may not. Sender -> incarnation."""
        new, gone = self.state.deliveries.differences(lives)
        for life in gone:
            self.fence(life)
        for life in new:
            self.admit(life)
        self.state.live_replicas = max(1, len(lives))

    def fence(self, life: SenderLife) -> Delivered:
        """Nothing of this life is applied from now on; what is here of it."""
        self.records.event(Kind.FENCED, life)
        return self.state.deliveries.fence(life.sender, life.incarnation)

    def forget(self, lives: Iterable[SenderLife]) -> None:
        """Of these lives nothing will be asked any more; see `Coverage`."""
        for life in self.records.forget(lives):
            self.state.deliveries.forget(life)

    def handle(self, header: Header, payload: memoryview) -> Answers:
        """The answers to one request. Take them one by one: a payload is the shard's own memory."""
        handler = self._handlers.get(header.verb)
        if handler is None or header.role != Role.REPLICA:
            return self._refuse(
                header, Reason.NOT_ALLOWED, f"verb {header.verb} is not for a shard"
            )
        standing = self.state.deliveries.standing(header.sender, header.incarnation)
        if standing is not Decision.APPLY:
            return self._refuse(header, REASONS[standing], self._standing_sentence(header))
        if self.state.values is None:
            return self._refuse(header, Reason.NOT_READY, "the model's size is not known yet")
        return handler(header, payload)

    def _hello(self, header: Header, _payload: memoryview) -> Answers:
        known = self.state.deliveries.hello(header.sender, header.incarnation, header.sequence)
        share = self._values.share
        welcome = Welcome(
            holder=share.holder, epoch=share.placement.epoch, chunk_bytes=share.chunk_bytes
        )
        answer = self.state.answer(Verb.WELCOME, header)._replace(
            sequence=known.sequence + 1,
            chunk=known.next_chunk,
            staleness=known.staleness,
            reason=Reason.NOT_FINITE if 0 < header.sequence == known.refused else Reason.NONE,
        )
        return [Answer(answer, encode_welcome(welcome))]

    def _store(self, header: Header, payload: memoryview) -> Answers:
        if self.state.is_initialised:
            return [Answer(self.state.answer(Verb.UPLOADED, header)._replace(count=0))]
        reason = store_chunk(self._values, header, payload)
        if reason:
            return self._refuse(
                header, reason, f"chunk {header.chunk} cannot be stored: {reason.name}"
            )
        upload = self._upload_of(SenderLife(header.sender, header.incarnation))
        self.state.is_initialised = upload.add(header)
        if not self.state.is_initialised:
            return []
        self._upload = None
        return [Answer(self.state.answer(Verb.UPLOADED, header)._replace(count=0))]

    def _upload_of(self, life: SenderLife) -> UploadProgress:
        """Another life begins anew: the values of two uploads never mix."""
        if self._upload is None or self._upload.life != life:
            self._upload = UploadProgress(life, self._values)
        return self._upload

    def _fetch(self, header: Header, _payload: memoryview) -> Answers:
        problem = self._unready(header) or self._unfetchable(header)
        if problem:
            return self._refuse(header, *problem)
        vector = self._values.vector_of(header)
        return [] if vector is None else self._chunks(header, vector)

    def _unfetchable(self, header: Header) -> Problem | None:
        vector, end = self._values.vector_of(header), header.chunk + header.count
        known = vector is not None and end <= self._values.share.num_chunks(vector)
        if known and header.count <= MOST_CHUNKS_PER_FETCH:
            return None
        what = f"vector {header.vector}" if vector is None else str(vector)
        return Reason.WRONG_LAYOUT, f"chunks {header.chunk} to {end} of {what} are not here"

    def _chunks(self, header: Header, vector: Vector) -> Answers:
        answer = self.state.answer(Verb.FETCHED, header)._replace(
            chunks=self._values.share.num_chunks(vector),
            element_type=vector.element_type,
            samples=self.state.samples,
        )
        for number in range(header.chunk, header.chunk + header.count):
            part = self._values.share.chunk(vector, number)
            payload = self._served(header, part)
            self.records.fetched(header, number, self.state.live_replicas)
            yield Answer(
                answer._replace(
                    chunk=number, first=part.first, count=part.count, payload_bytes=payload.nbytes
                ),
                payload,
            )

    def _served(self, header: Header, part: Part) -> memoryview:
        """What the sender of a FETCH gets for some elements."""
        del header
        return self._values.bytes_of(part)

    @property
    def _values(self) -> Values:
        values = self.state.values
        if values is None:
            message = "a shard without values answers no request"
            raise AssertionError(message)
        return values

    def _unready(self, header: Header) -> Problem | None:
        if not self.state.is_initialised:
            return Reason.NOT_READY, "the initial values are not complete"
        if header.receiver_incarnation != self.state.incarnation:
            life = self.state.incarnation
            return Reason.WRONG_RECEIVER, f"this is life {life} of shard {self.state.index}"
        return None

    def _standing_sentence(self, header: Header) -> str:
        return f"life {header.incarnation} of replica {header.sender} is not admitted here"

    def _refuse(self, header: Header, reason: Reason, sentence: str) -> Answers:
        self.refused[reason.name.lower()] += 1
        return [self.state.refuse(header, reason, sentence)]
