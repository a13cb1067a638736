"""A shard of Downpour: every push changes the parameters at once, chunk by chunk.

Each chunk is applied at most once, and only if it is sound.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import torch
from torch import Tensor

from disttrain.holder.values import Values, bytes_of, is_finite, merge, tensor_of
from disttrain.job import defaults
from disttrain.job.average import AVERAGE
from disttrain.job.length import UNKNOWN, Extent, Length
from disttrain.job.schedule_kinds import Factor, full_rate
from disttrain.job.shard_rule import ShardRule
from disttrain.job.spec import Spec
from disttrain.job.staleness import Staleness
from disttrain.job.strategies.downpour import Downpour
from disttrain.job.strategy_kind import StrategyKind
from disttrain.parameter_server import arithmetic, deliveries, presence
from disttrain.parameter_server.average import MovingAverage
from disttrain.parameter_server.deliveries import ChunkName, Decision, Delivered, SenderIncarnation
from disttrain.parameter_server.fetch_contexts import FetchContexts
from disttrain.parameter_server.holder_side import (
    REASONS,
    Answer,
    Answers,
    HolderSide,
    Refused,
    ShardState,
)
from disttrain.parameter_server.maximum_staleness import MaximumStaleness
from disttrain.parameter_server.messages import ACKNOWLEDGE_EVERY
from disttrain.parameter_server.narrowing import Narrowing
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.update_rule import Chunk, PushContext, Rule
from disttrain.state.factors import Factors, within
from disttrain.state.fragments import WHOLE
from disttrain.state.placement import Range
from disttrain.state.share import Part, Share
from disttrain.state.vector import Vector
from disttrain.transport.header import Header, Reason, Verb


class PushedGradients(HolderSide):
    """Versions count the pushes that are in the values."""

    of: ClassVar[type[StrategyKind]] = Downpour

    most_work: deliveries.MostWork | None = None
    """None: nobody knows what a push can hold."""

    def __init__(
        self,
        rule: Rule[Any],
        state: ShardState,
        records: Records,
        extent: Callable[[int], Extent] = lambda _: UNKNOWN,
        *,
        staleness: Staleness | None = None,
        average: Length | None = None,
    ) -> None:
        """`extent`: how long the run is, by its training samples.

        `staleness`: what is done about it beside the rule; None: nothing. `average`: the half-life
        of a moving average; None: none is kept.
        """
        super().__init__(rule.config, state, records)
        self._average = None if average is None else MovingAverage(average)
        self.kept = Kept(rule.config, averages=average is not None)
        self._rule = rule
        self._extent = extent
        given = staleness or Staleness()
        self._scales_rate = given.scale_rate is not None
        most = given.maximum
        self._maximum = None if most is None else MaximumStaleness(state, most, self._give_up)
        self._factor: Factor = full_rate
        """The schedule, from `begin` on."""
        self._scratch = torch.zeros(0)
        self._narrowing = Narrowing()
        self._fetches = FetchContexts(state, self._rate)
        self._beside: defaultdict[SenderIncarnation, dict[str, Tensor]] = defaultdict(dict)
        """What goes with the next chunk of each sender's gradient."""
        self.handlers[Verb.PUSH] = self._push

    @classmethod
    def made(cls, stage: Spec, state: ShardState, records: Records) -> Self:
        manifest = stage.strategy.only_downpour
        side = cls(
            arithmetic.rule_for(cls.config_of(stage)),
            state,
            records,
            partial(defaults.extent, stage),
            staleness=manifest.staleness,
            average=None if manifest.ema is None else manifest.ema.half_life,
        )
        most = defaults.samples_per_step(stage)
        side.most_work = deliveries.MostWork(manifest.push_every, most)
        return side

    @staticmethod
    def config_of(stage: Spec) -> Any:
        return stage.strategy.only_downpour.shard_rule

    @classmethod
    def kept_by(cls, stage: Spec) -> "Kept":
        return Kept(cls.config_of(stage), averages=stage.strategy.rule.evaluates == AVERAGE)

    @staticmethod
    def room(kept: "Kept", share: Share, description: Mapping[str, str]) -> Values:
        del description
        average = {AVERAGE: 0.0} if kept.averages else {}
        vectors = {**kept.rule.initial_state, **average}
        return Values(share, vectors, optional=vectors.keys() - kept.rule.kept)

    def begin(
        self, values: Values, description: Mapping[str, str], returned_to: int | None
    ) -> None:
        super().begin(values, description, returned_to)
        self._beside.clear()
        if self._maximum is not None:
            self._maximum.clear()
        chunks = values.share.num_chunks(values.trained)
        self.state.deliveries.complete_groups(chunks, 1 + len(self.config.pushed))
        run = self._extent(self.state.train_samples)
        self._factor = self.config.rates(run)
        if self._average is not None:
            self._average.begin(values, run)

    def initialised(self) -> None:
        if self._average is not None:
            self._average.restart(self.values)

    @property
    def rate(self) -> float:
        """By the schedule, before the factors of single parameters."""
        return self._rate(self.state.samples)

    @property
    def prediction_errors(self) -> Mapping[int, float]:
        return self._rule.prediction_errors

    @property
    def waited_seconds(self) -> float:
        return 0.0 if self._maximum is None else self._maximum.waited_seconds

    def why_waits(self, header: Header) -> Refused | None:
        return None if self._maximum is None else self._maximum.why_waits(header)

    def drop(self, incarnation: SenderIncarnation) -> None:
        if self._maximum is not None:
            self._maximum.drop(incarnation)
        self._fetches.drop(incarnation)
        incarnation.forget_in(self._beside)
        if self.state.values is not None:
            self.state.values.drop_sender(incarnation)

    def _push(self, header: Header, payload: memoryview) -> Answers:
        """Decide first: the payload of a repeated chunk may be long gone and is not touched."""
        name = ChunkName(header.sequence, header.chunk, header.chunks)
        decision = self.state.deliveries.decide(header.sender, header.incarnation, name)
        if decision is Decision.APPLY:
            return self._apply(header, payload)
        if decision is Decision.DUPLICATE:
            return self._repeated(header)
        sentence = f"chunk {header.chunk} of push {header.sequence}: {decision.name}"
        known = self.state.deliveries.of(header.sender, header.incarnation)
        was_refused = decision is Decision.REFUSED_BEFORE
        reason = known.why_refused if was_refused else REASONS[decision]
        is_waiting = self._maximum is not None and self._maximum.is_waiting(header)
        raise Refused(reason, sentence, is_repeat=was_refused or is_waiting)

    def _apply(self, header: Header, payload: memoryview) -> Answers:
        state, most = self.state, self.most_work
        if said := deliveries.unbelievable(header, state.incarnation, state.count, most):
            raise Refused(Reason.MALFORMED, said)
        if header.chunk == 0 and self._maximum is not None:
            self._maximum.check(header, self._staleness(header))
        fragment = self.fragment(header) if self.fragments else WHOLE
        part = self.values.pushed(header, self.config.pushed, fragment)
        if part is None:
            what = f"elements {header.first} to {header.first + header.count}"
            raise Refused(Reason.WRONG_LAYOUT, f"{what} are not chunk {header.chunk}")
        own = part.vector.element_type
        is_own = header.element_type == own
        sent = tensor_of(payload, own) if is_own else self._narrowing.received(header, payload)
        self._check_values(part, header, sent)
        present = self._present(part, sent)
        if header.chunk == 0:
            self._begin(header)
        context = self._push_context(header)
        if part.vector.name in self.config.pushed:
            # Nothing changes before the gradient is here. The payload is gone by then.
            self._beside[SenderIncarnation.of(header)][part.vector.name] = sent.clone()
        else:
            self._change(part, present, header, sent, context)
        return self._applied(header, context.rate)

    def _change(
        self, part: Part, present: list[Range], header: Header, sent: Tensor, push: PushContext
    ) -> None:
        if self.state.cut is not None:
            self.state.cut.before_change(part)
        if not part.vector.is_trained:
            merge(self.values.part(part), sent, self.state.live_replicas)
        elif header.count:
            gradient = sent
            if header.scale != 1.0:
                gradient = torch.mul(sent, header.scale, out=self._scratch_like(sent))
            for beside in self._beside_of(header).values():
                beside.mul_(header.scale**2)
            for piece in self._pieces(part, present):
                self._update(piece, part, header, gradient, push)
            if self._average is not None:
                self._average.follow(self.values, part, header.samples)

    def _check_values(self, part: Part, header: Header, sent: Tensor) -> None:
        del part
        if not is_finite(sent):
            self._give_up(header, Reason.NOT_FINITE, "holds values that are not finite")

    def _present(self, part: Part, sent: Tensor) -> list[Range]:
        """The elements that have a gradient."""
        if not (part.count and part.vector.is_trained and self.config.zero_is_a_step):
            return [Range(part.first, part.first + part.count)]
        try:
            runs = presence.present(sent)
        except ValueError as error:
            raise Refused(Reason.MALFORMED, f"chunk {part.chunk}: {error}") from error
        return [Range(part.first + run.first, part.first + run.end) for run in runs]

    def _pieces(self, part: Part, present: list[Range]) -> Iterator["_Piece"]:
        """What the rule treats alike."""
        for run in present:
            if not self.config.counts_steps:
                yield from self._with_factors(part, run.first, run.end, 0)
                continue
            for first, end, steps in self.state.steps.within(run.first, run.end):
                yield from self._with_factors(part, first, end, steps)
            self.state.steps.add(run.first, run.end)

    def _with_factors(self, part: Part, first: int, end: int, steps: int) -> Iterator["_Piece"]:
        known = self.values.share.factors if self.config.uses_factors else ()
        for factors in within(known, first, end) if known else (Factors(first, end),):
            count = factors.end - factors.first
            yield _Piece(part._replace(first=factors.first, count=count), steps, factors)

    def _update(
        self, piece: "_Piece", part: Part, header: Header, gradient: Tensor, push: PushContext
    ) -> None:
        first = piece.part.first - part.first
        cut = slice(first, first + piece.part.count)
        chunk = self._chunk(piece.part, header)._replace(
            steps=piece.steps,
            decay_factor=piece.factors.weight_decay,
            pushed={name: each[cut] for name, each in self._beside_of(header).items()},
        )
        if (factor := piece.factors.learning_rate) != 1.0:
            push = replace(push, rate=push.rate * factor)
        self._rule.apply(chunk, gradient[cut], push)

    def _beside_of(self, header: Header) -> dict[str, Tensor]:
        return self._beside[SenderIncarnation.of(header)] if self.config.pushed else {}

    def _begin(self, header: Header) -> None:
        state = self.state
        if self._maximum is not None:
            self._maximum.begun(header)
        state.deliveries.begin(
            SenderIncarnation.of(header),
            chunks=header.chunks,
            samples=state.samples,
            steps=state.count,
            staleness=self._staleness(header),
            live_replicas=state.live_replicas,
        )

    def _push_context(self, header: Header) -> PushContext:
        """As it was at the push's first chunk: its sender's mean changes when it is complete."""
        delivered = self.state.deliveries.of(header.sender, header.incarnation)
        staleness, mean = delivered.first_staleness, delivered.mean_staleness
        rate = self._rate(delivered.schedule_samples)
        if self._scales_rate:
            rate /= max(1.0, staleness if staleness >= 0 else mean)
        return PushContext(
            sender=header.sender,
            staleness=staleness,
            mean_staleness=mean,
            steps=delivered.first_steps,
            rate=rate,
            live_replicas=delivered.first_live_replicas,
        )

    def _chunk(self, part: Part, header: Header) -> Chunk:
        values, names = self.values, self.config.kept_of_sender
        of_sender = values.of_sender(SenderIncarnation.of(header), names, part) if names else {}
        return Chunk(values.part(part), values.beside(part), of_sender)

    def fetched(self, header: Header) -> Vector | None:
        named = self.values.share.placement.vector(header.vector)
        if self._maximum is not None:
            self._maximum.fetched(header)
        return named if self._is_made(named) else super().fetched(header)

    def served(self, header: Header, part: Part, place: memoryview) -> memoryview:
        if not self._is_made(part.vector):
            return super().served(header, part, place)
        beside = part._replace(vector=self.values.trained)
        chunk = self._chunk(beside, header)
        # Without a place always the same memory: it stays in the cache until it is sent.
        out = self._scratch_like(chunk.parameters)
        if place.nbytes == part.nbytes:
            out = tensor_of(place, part.vector.element_type)
        self._rule.serve(chunk, self._fetches.of(header), out)
        return bytes_of(out)

    def _is_made(self, named: Vector | None) -> bool:
        """Whether the rule makes it when it is fetched."""
        made = self.config.serves
        return made is not None and named == self.values.trained.beside(made)

    def _applied(self, header: Header, rate: float) -> Answers:
        self.records.applied(header, self.state.count, rate, self.state.live_replicas)
        if self.state.deliveries.applied(header.sender, header.incarnation):
            return [self._complete(header, rate)]
        if header.chunk % ACKNOWLEDGE_EVERY == ACKNOWLEDGE_EVERY - 1:
            return [self._pushed(header, -1)]
        return []

    def _complete(self, header: Header, rate: float) -> Answer:
        state = self.state
        staleness = self._staleness(header)
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
        self.records.pushed(header, delivered, rate)
        if self._maximum is not None:
            self._maximum.ended(header)
        return self._pushed(header, staleness)

    def _repeated(self, header: Header) -> Answers:
        """The answer to a last chunk may have been lost; nobody waits for the others'."""
        if header.chunk + 1 < header.chunks:
            return []
        delivered = self.state.deliveries.of(header.sender, header.incarnation)
        latest = delivered.sequence == header.sequence
        return [self._pushed(header, delivered.staleness if latest else -1)]

    def _pushed(self, header: Header, staleness: int) -> Answer:
        answer = self.state.answer(Verb.PUSHED, header)
        return Answer(answer._replace(staleness=staleness, count=0, first=0))

    def _give_up(self, header: Header, reason: Reason, why: str) -> NoReturn:
        is_stale = reason is Reason.TOO_STALE
        self.state.deliveries.give_up(header.sender, header.incarnation, is_stale=is_stale)
        self.records.refused(header, reason)
        if self._maximum is not None:
            self._maximum.ended(header)
        raise Refused(reason, f"chunk {header.chunk} of push {header.sequence} {why}")

    def _rate(self, samples: int) -> float:
        rate: float = self.config.learning_rate
        return rate * self._factor(samples)

    def _staleness(self, header: Header) -> int:
        """Updates since the version of a gradient's parameters; -1: of another incarnation."""
        known = header.version_incarnation == self.state.incarnation
        return self.state.count - header.version if known else -1

    def _scratch_like(self, values: Tensor) -> Tensor:
        if self._scratch.numel() < values.numel():
            self._scratch = torch.zeros_like(values)
        return self._scratch[: values.numel()]


class Kept(NamedTuple):
    """What a shard keeps beside the parameters."""

    rule: ShardRule
    averages: bool


class _Piece(NamedTuple):
    part: Part
    steps: int
    factors: Factors
