"""Applies pushes chunk by chunk, each at most once and only if it is sound."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from disttrain.holder.values import Values
from disttrain.parameter_server import buffers
from disttrain.parameter_server.deliveries import ChunkName, Decision, Delivered
from disttrain.parameter_server.messages import ACKNOWLEDGE_EVERY
from disttrain.parameter_server.received import is_finite, tensor_of
from disttrain.parameter_server.records import ChunkApplied, Records
from disttrain.parameter_server.schedule import Factor
from disttrain.parameter_server.state import REASONS, Answer, ShardState
from disttrain.parameter_server.update_rules import Rule
from disttrain.state.share import Part
from disttrain.state.vector import BUFFERS
from disttrain.transport.header import ElementType, Header, Reason, Verb

BeforeChange = Callable[[Part], None]
"""Called before elements change, so that a snapshot can copy them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Updates:
    """How gradients change parameters."""

    rule: Rule
    learning_rate: float
    factor: Factor


class Applier:
    """The way of a chunk from its header into the values."""

    def __init__(self, state: ShardState, updates: Updates, records: Records) -> None:
        self.before_change: BeforeChange | None = None
        self._state = state
        self._updates = updates
        self._records = records
        self._scratch = torch.zeros(0)

    @property
    def initial_state(self) -> Mapping[str, float]:
        """The vectors that the update rule keeps, and what they are filled with at first."""
        return self._updates.rule.initial_state

    def push(self, header: Header, payload: memoryview) -> list[Answer]:
        """Decide first: the payload of a repeated chunk may be long gone and is not touched."""
        name = ChunkName(header.sequence, header.chunk, header.chunks)
        decision = self._state.deliveries.decide(header.sender, header.incarnation, name)
        if decision is Decision.APPLY:
            return self._apply(header, payload)
        if decision is Decision.DUPLICATE:
            return self._repeated(header)
        sentence = f"chunk {header.chunk} of push {header.sequence}: {decision.name}"
        return [self._state.refuse(header, REASONS[decision], sentence)]

    def _apply(self, header: Header, payload: memoryview) -> list[Answer]:
        problem = _unsound(header, self._state)
        if problem:
            return [self._state.refuse(header, Reason.MALFORMED, problem)]
        values = self._state.values
        part = None if values is None else _part(values, header)
        if values is None or part is None:
            end = header.first + header.count
            sentence = f"elements {header.first} to {end} are not chunk {header.chunk}"
            return [self._state.refuse(header, Reason.WRONG_LAYOUT, sentence)]
        sent = tensor_of(payload, ElementType(header.element_type))
        if not is_finite(sent):
            return [self._give_up(header)]
        if header.chunk == 0:
            self._state.deliveries.begin(
                header.sender, header.incarnation, header.chunks, self._state.samples
            )
        rate = self._change(values, part, header, sent)
        return self._applied(header, rate)

    def _change(self, values: Values, part: Part, header: Header, sent: Tensor) -> float:
        if self.before_change is not None:
            self.before_change(part)
        rate = self._rate(header)
        if not part.vector.is_trained:
            buffers.merge(values.part(part), sent, self._state.live_replicas)
        elif header.count:
            gradient = sent if header.scale == 1.0 else self._scaled(sent, header.scale)
            self._updates.rule.apply(values.part(part), gradient, values.beside(part), rate)
        return rate

    def _applied(self, header: Header, rate: float) -> list[Answer]:
        event = ChunkApplied(self._state.count, rate, self._state.live_replicas)
        self._records.applied(header, event)
        if self._state.deliveries.applied(header.sender, header.incarnation):
            return [self._complete(header, rate)]
        if header.chunk % ACKNOWLEDGE_EVERY == ACKNOWLEDGE_EVERY - 1:
            return [self._pushed(header, -1)]
        return []

    def _complete(self, header: Header, rate: float) -> Answer:
        state = self._state
        known = header.version_incarnation == state.incarnation
        staleness = state.count - header.version if known else -1
        state.count += 1
        state.samples += header.samples
        after = Delivered(
            lease=header.lease,
            lease_offset=header.lease_offset,
            samples=header.samples,
            version=state.count,
            staleness=staleness,
        )
        delivered = state.deliveries.complete(header.sender, header.incarnation, after)
        self._records.pushed(header, delivered, rate)
        return self._pushed(header, staleness)

    def _repeated(self, header: Header) -> list[Answer]:
        """The answer to a last chunk may have been lost; nobody waits for the others'."""
        if header.chunk + 1 < header.chunks:
            return []
        delivered = self._state.deliveries.of(header.sender, header.incarnation)
        latest = delivered.sequence == header.sequence
        return [self._pushed(header, delivered.staleness if latest else -1)]

    def _pushed(self, header: Header, staleness: int) -> Answer:
        answer = self._state.answer(Verb.PUSHED, header)
        return Answer(answer._replace(staleness=staleness, count=0, first=0))

    def _give_up(self, header: Header) -> Answer:
        self._state.deliveries.give_up(header.sender, header.incarnation)
        self._records.refused(header, Reason.NOT_FINITE)
        sentence = (
            f"chunk {header.chunk} of push {header.sequence} holds values that are not finite"
        )
        return self._state.refuse(header, Reason.NOT_FINITE, sentence)

    def _rate(self, header: Header) -> float:
        delivered = self._state.deliveries.of(header.sender, header.incarnation)
        return self._updates.learning_rate * self._updates.factor(delivered.schedule_samples)

    def _scaled(self, sent: Tensor, scale: float) -> Tensor:
        if self._scratch.numel() < sent.numel():
            self._scratch = torch.zeros_like(sent)
        return torch.mul(sent, scale, out=self._scratch[: sent.numel()])


def _unsound(header: Header, state: ShardState) -> str:
    """What no honest sender would say."""
    if not 0 < header.scale <= 1:
        # Clipping only makes smaller: anything else would overflow or climb.
        return f"scale {header.scale} is not above 0 and at most 1"
    if header.version_incarnation == state.incarnation and header.version > state.count:
        return f"computed on version {header.version}, this life has reached {state.count}"
    return ""


def _part(values: Values, header: Header) -> Part | None:
    """What a chunk changes; None for one that does not fit.

    The parameters' chunks come first, cut as everywhere; then parts of the buffers.
    """
    vector = values.vector_of(header)
    if vector is None or not values.holds(vector, header):
        return None
    parameter_chunks = values.share.num_chunks(values.trained)
    part = Part(vector, header.chunk, header.first, header.count)
    if header.chunk >= parameter_chunks:
        return part if vector.name == BUFFERS else None
    is_whole = vector.is_trained and part == values.share.chunk(vector, header.chunk)
    return part if is_whole and header.chunks >= parameter_chunks else None
