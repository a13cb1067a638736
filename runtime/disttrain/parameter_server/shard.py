"""A shard: what it answers in every strategy, and which stage of its job is at work.

No socket, no clock; one thread.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from disttrain.checkpoint.errors import CheckpointError, Corrupt, NoCheckpoint, WrongSnapshot
from disttrain.coordinator.protocol import commands
from disttrain.holder.values import Values, is_finite, tensor_of
from disttrain.parameter_server.deliveries import Decision, Delivered, SenderIncarnation
from disttrain.parameter_server.holder_side import (
    REASONS,
    Answer,
    Answers,
    Handler,
    HolderSide,
    Refused,
)
from disttrain.parameter_server.ledger import Kind
from disttrain.parameter_server.messages import MOST_CHUNKS_PER_FETCH, Welcome, encode_welcome
from disttrain.parameter_server.narrowing import Narrowing
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.step_counts import StepCounts
from disttrain.state.placement import Placement
from disttrain.state.share import Part, Share
from disttrain.state.vector import Vector
from disttrain.telemetry import logs
from disttrain.transport.header import ElementType, Header, Reason, Role, Verb
from disttrain.transport.interface import NO_BYTES

LOG = logs.get(__name__)


class Shard:
    """Introductions, initial values and fetches; what changes the values is a stage's own."""

    def __init__(self, stages: Sequence[HolderSide]) -> None:
        self.state = stages[0].state
        self.records = stages[0].records
        self.refused: Counter[str] = Counter()
        """Requests not carried out, by the lower-case name of the reason."""
        self._stages = stages
        self._upload: _Upload | None = None
        self._narrowing = Narrowing()
        self._enter(0)

    def _enter(self, number: int) -> None:
        """The stages before this one are over for good: they hold values, too."""
        self._stages = self._stages[number:]
        self.stage, *self._to_come = self._stages
        self._handlers: dict[int, Handler] = {
            Verb.HELLO: self._hello,
            Verb.UPLOAD: self._store,
            Verb.FETCH: self._fetch,
            **self.stage.handlers,
        }

    def configure(self, placement: Placement, chunk_bytes: int) -> None:
        """Learn the placement and make room. Said again, it changes nothing."""
        if self.state.values is None:
            share = Share(placement, self.state.index, chunk_bytes)
            self.state.values = self.stage.room(self.stage.kept, share, {})
            self.state.steps = StepCounts(share.range_of(share.trained))
            self.stage.begin(self.state.values, {}, None)

    def initialise(self) -> None:
        """All initial values are here."""
        self.state.is_initialised = True
        self.stage.initialised()

    def restore(self, restored: RestoredShard) -> None:
        """Begin with the values of a checkpoint, in the stage that has made it.

        The last stage also takes what update rules of no stage have made.
        """
        names = [stage.config.name for stage in self._stages]
        made = [number for number, name in enumerate(names) if name == restored.update_rule]
        self._restore(restored, made[-1] if made else len(names) - 1, None)

    def return_to(self, checkpoint: int, read: Callable[[], RestoredShard]) -> commands.Result:
        """Go back to a checkpoint, in the last stage from now on.

        `read` gives this shard's part of it, or raises CheckpointError or WrongSnapshot.
        """
        try:
            restored = read()
        except (CheckpointError, WrongSnapshot) as error:
            LOG.error("cannot return to a checkpoint", number=checkpoint, error=error)
            is_damaged = isinstance(error, Corrupt | NoCheckpoint)
            why = commands.WhyFailed.DAMAGED if is_damaged else commands.WhyFailed.OTHER
            return commands.CommandFailed(message=str(error)[:1000], why=why)
        # What was given out in this incarnation stays given out: versions never go back.
        version = self.state.count
        self._restore(restored, len(self._stages) - 1, checkpoint)
        self.state.count = version + 1
        return commands.Done()

    def _restore(self, restored: RestoredShard, stage: int, returned_to: int | None) -> None:
        state = self.state
        # A checkpoint that is being written is of other values, which nobody changes any more.
        state.values, state.cut = restored.values, None
        state.count, state.samples = restored.version, restored.samples
        state.deliveries.restore(restored.delivered)
        state.gathered = {number: dict(of) for number, of in restored.gathered.items()}
        state.is_initialised = True
        self._enter(stage)
        goes_on = restored.update_rule == self.stage.config.name
        share, known = restored.values.share, restored.steps if goes_on else ()
        state.steps = StepCounts(share.range_of(share.trained), known)
        self.stage.begin(restored.values, restored.description, returned_to)

    def admit(self, incarnation: SenderIncarnation) -> None:
        self.stage.drop(SenderIncarnation(incarnation.sender, incarnation.incarnation - 1))
        self.state.deliveries.admit(incarnation.sender, incarnation.incarnation)
        self.records.event(Kind.ADMITTED, incarnation)

    def admit_only(self, incarnations: Mapping[int, int]) -> None:
        """Sender -> incarnation: these of replicas may push and fetch, all others may not."""
        new, gone = self.state.deliveries.differences(incarnations)
        for incarnation in gone:
            self.fence(incarnation)
        for incarnation in new:
            self.admit(incarnation)
        self.state.live_replicas = max(1, len(incarnations))

    def fence(self, incarnation: SenderIncarnation) -> Delivered:
        """Nothing of this incarnation is applied from now on; what is here of it."""
        self.stage.drop(incarnation)
        self.records.event(Kind.FENCED, incarnation)
        return self.state.deliveries.fence(incarnation.sender, incarnation.incarnation)

    def forget(self, incarnations: Iterable[SenderIncarnation]) -> None:
        """Of these incarnations nothing will be asked any more; see `Coverage`."""
        for incarnation in self.records.forget(incarnations):
            self.state.deliveries.forget(incarnation)

    def handle(self, header: Header, payload: memoryview) -> Answers:
        """The answers to one request. Take them one by one: a payload is the shard's own memory."""
        try:
            return self._handler(header)(header, payload)
        except Refused as refused:
            for stage in self._to_come:
                refused = stage.too_early(header) or refused
            if not refused.is_repeat:
                self.refused[refused.reason.name.lower()] += 1
            return [self.state.refuse(header, refused)]

    def _handler(self, header: Header) -> Handler:
        handler = self._handlers.get(header.verb)
        if handler is None or header.role != Role.REPLICA:
            raise Refused(Reason.NOT_ALLOWED, f"verb {header.verb} is not for a shard")
        standing = self.state.deliveries.standing(header.sender, header.incarnation)
        if standing is not Decision.APPLY:
            sentence = (
                f"incarnation {header.incarnation} of replica {header.sender} is not admitted here"
            )
            raise Refused(REASONS[standing], sentence)
        if self.state.values is None:
            raise Refused(Reason.NOT_READY, "the model's size is not known yet")
        if header.verb not in (Verb.HELLO, Verb.UPLOAD):
            self._check_ready(header)
        return handler

    def _check_ready(self, header: Header) -> None:
        if not self.state.is_initialised:
            raise Refused(Reason.NOT_READY, "the initial values are not complete")
        incarnation = self.state.incarnation
        if header.receiver_incarnation != incarnation:
            raise Refused(
                Reason.WRONG_RECEIVER,
                f"this is incarnation {incarnation} of shard {self.state.index}",
            )

    def _hello(self, header: Header, _payload: memoryview) -> Answers:
        if (refused := self.stage.why_waits(header)) is not None:
            raise refused
        known = self.state.deliveries.hello(header.sender, header.incarnation, header.sequence)
        share = self.stage.values.share
        welcome = Welcome(
            holder=share.holder, epoch=share.placement.epoch, chunk_bytes=share.chunk_bytes
        )
        answer = self.state.answer(Verb.WELCOME, header)._replace(
            sequence=known.sequence + 1,
            chunk=known.next_chunk,
            staleness=known.staleness,
            reason=known.why_refused if 0 < header.sequence == known.refused else Reason.NONE,
        )
        return [Answer(answer, encode_welcome(welcome))]

    def _store(self, header: Header, payload: memoryview) -> Answers:
        if not self.state.is_initialised:
            reason = store_chunk(self.stage.values, header, payload)
            if reason:
                sentence = f"chunk {header.chunk} cannot be stored: {reason.name}"
                raise Refused(reason, sentence)
            upload = self._upload_of(SenderIncarnation.of(header))
            upload.missing.discard((header.vector, header.chunk))
            if upload.missing:
                return []
            self.initialise()
            self._upload = None
        return [Answer(self.state.answer(Verb.UPLOADED, header)._replace(count=0))]

    def _upload_of(self, incarnation: SenderIncarnation) -> "_Upload":
        """Another incarnation begins anew: the values of two uploads never mix."""
        if self._upload is None or self._upload.incarnation != incarnation:
            self._upload = _Upload(incarnation, self.stage.values.share)
        return self._upload

    def _fetch(self, header: Header, place: memoryview) -> Answers:
        refused = self.stage.unfetchable(header)
        if refused is not None:
            raise refused
        share, fragment = self.stage.values.share, self.stage.fragment(header)
        vector, end = self.stage.fetched(header), header.chunk + header.count
        parts = () if vector is None else share.fragment_chunks(vector, fragment)
        if vector is None or end > len(parts) or header.count > MOST_CHUNKS_PER_FETCH:
            what = f"vector {header.vector}" if vector is None else str(vector)
            sentence = f"chunks {header.chunk} to {end} of {what} are not here"
            raise Refused(Reason.WRONG_LAYOUT, sentence)
        is_narrow = header.element_type == ElementType.BFLOAT16
        if is_narrow and not vector.travels_as(ElementType.BFLOAT16):
            raise Refused(Reason.WRONG_LAYOUT, f"{vector} does not travel as bfloat16")
        if is_narrow:
            return self._chunks(header, vector.narrow, parts, NO_BYTES)
        return self._chunks(header, vector, parts, place)

    def _chunks(
        self, header: Header, vector: Vector, parts: Sequence[Part], place: memoryview
    ) -> Answers:
        answer = self.state.answer(Verb.FETCHED, header)._replace(
            chunks=len(parts),
            element_type=vector.element_type,
            samples=self.state.samples,
        )
        for number in range(header.chunk, header.chunk + header.count):
            part = parts[number]._replace(vector=vector.held)
            distance = part.offset - parts[header.chunk].offset
            payload = self.stage.served(header, part, place[distance : distance + part.nbytes])
            if vector != vector.held:
                payload = self._narrowing.sent(payload)
            self.records.fetched(header, number, self.state.live_replicas)
            yield Answer(
                answer._replace(
                    chunk=number, first=part.first, count=part.count, payload_bytes=payload.nbytes
                ),
                payload,
            )


class _Upload:
    """One incarnation's initial values, whose chunks come in any order and perhaps twice."""

    def __init__(self, incarnation: SenderIncarnation, share: Share) -> None:
        self.incarnation = incarnation
        self.missing = {
            (share.placement.number(vector), chunk)
            for vector in share.ranges
            if vector.is_of_a_model
            for chunk in range(share.num_chunks(vector))
        }


def store_chunk(values: Values, header: Header, payload: memoryview) -> Reason:
    """Take over one chunk of initial values, or say why not."""
    vector = values.vector_of(header)
    if vector is None or not vector.is_of_a_model or not values.is_whole_chunk(vector, header):
        return Reason.WRONG_LAYOUT
    sent = tensor_of(payload, vector.element_type)
    if vector.is_trained and not is_finite(sent):
        return Reason.NOT_FINITE
    values.part(values.share.chunk(vector, header.chunk)).copy_(sent)
    return Reason.NONE
