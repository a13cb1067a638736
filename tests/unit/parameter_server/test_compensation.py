"""Gradients that are compensated for their delay, beside the same in double precision."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from builders import checkpoints, downpour_shards, placements
from builders.placements import PARAMETERS
from builders.transports import a_header
from disttrain.holder import writing
from disttrain.holder.restoring import Wanted
from disttrain.job.update_rule import UpdateRule
from disttrain.job.update_rules.compensated import Adaptive, Compensated
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.predicted_momentum import PredictedMomentum
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server import restoring
from disttrain.parameter_server.arithmetic import rule_for
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import Answer, ShardState
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.update_rule import Chunk, FetchContext, PushContext
from disttrain.state.share import Part
from disttrain.transport.header import ElementType, Reason, Verb

ELEMENTS, CHUNK, RATE, STRENGTH = 100, 32, 0.1, 0.5
CURVATURE = PARAMETERS.beside("curvature")
START = torch.linspace(-1.0, 1.0, ELEMENTS)


class Story:
    """A shard, and what it should have."""

    def __init__(self, inner: UpdateRule, adaptive: Adaptive | None = None) -> None:
        self.rule = Compensated.of(inner, STRENGTH, adaptive)
        self.shard = self.begun(1)
        self.shard.state.is_initialised = True
        self.parameters.copy_(START)
        self.pushes = 0

    @property
    def parameters(self) -> Tensor:
        values = self.shard.state.values
        assert values is not None
        return values.tensor(PARAMETERS)

    def begun(self, incarnation: int) -> Shard:
        shard = downpour_shards.build(ShardState(index=0, incarnation=incarnation), self.rule)
        served = () if self.rule.serves is None else (self.rule.serves,)
        kept = (*self.rule.kept, *self.rule.pushed, *served)
        placement = placements.a_placement({PARAMETERS: ELEMENTS}, 1, kept)
        shard.configure(placement, 4 * CHUNK)
        shard.admit(SenderIncarnation(0, 1))
        return shard

    def restart(self, folder: Path) -> None:
        state = self.shard.state
        assert state.values is not None
        made = checkpoints.commit_cuts(
            folder, [writing.cut(1, state.values, state.notes())], self.rule.name
        )
        wanted = Wanted(
            share=state.values.share,
            makers={self.rule.name: downpour_shards.with_state(self.rule.kept)},
            tables=restoring.TABLES,
        )
        restored = restoring.restore([made], wanted)
        assert restored is not None
        self.shard = self.begun(2)
        self.shard.restore(restored)

    def parts(self) -> list[Part]:
        """Of a push: what goes with a chunk comes before it."""
        values = self.shard.state.values
        assert values is not None
        chunks = values.share.all_chunks([PARAMETERS])
        return [one._replace(vector=v) for one in chunks for v in (CURVATURE, PARAMETERS)]

    def fetch(self) -> Tensor:
        """What a replica computes with."""
        assert self.rule.serves is not None
        values = self.shard.state.values
        assert values is not None
        header = a_header(
            Verb.FETCH,
            incarnation=1,
            receiver_incarnation=self.shard.state.incarnation,
            vector=values.share.placement.number(PARAMETERS.beside(self.rule.serves)),
            count=len(self.parts()) // 2,
        )
        answers = self.shard.handle(header, memoryview(b""))
        payloads = [bytearray(answer.payload) for answer in answers]
        return torch.cat([torch.frombuffer(each, dtype=torch.float32) for each in payloads])

    def send(
        self, number: int, gradient: Tensor, computed_on: Tensor, scale: float
    ) -> Answer | None:
        """One chunk of the push under way."""
        part = self.parts()[number]
        sent = gradient if part.vector == PARAMETERS else gradient * gradient * computed_on
        payload = sent[part.first : part.first + part.count].contiguous().numpy().data.cast("B")
        values = self.shard.state.values
        assert values is not None
        header = a_header(
            Verb.PUSH,
            incarnation=1,
            receiver_incarnation=self.shard.state.incarnation,
            version_incarnation=self.shard.state.incarnation,
            version=0,
            sequence=self.pushes + 1,
            vector=values.share.placement.number(part.vector),
            element_type=ElementType.FLOAT32,
            chunk=number,
            chunks=len(self.parts()),
            first=part.first,
            count=part.count,
            scale=scale,
            samples=1,
        )
        answers = list(self.shard.handle(header, payload))
        assert all(answer.header.verb == Verb.PUSHED for answer in answers), [
            Reason(answer.header.reason) for answer in answers
        ]
        return answers[-1] if answers else None

    def push(self, gradient: Tensor, computed_on: Tensor, scale: float = 1.0) -> None:
        for number in range(len(self.parts())):
            answer = self.send(number, gradient, computed_on, scale)
        assert answer is not None
        self.pushes += 1


def gradients(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(ELEMENTS, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("adaptive", [None, Adaptive(mean_square_decay=0.9, epsilon=1e-3)])
def test_a_gradient_is_corrected_by_how_far_the_parameters_have_moved(
    adaptive: Adaptive | None, scale: float
) -> None:
    story = Story(Sgd(learning_rate=RATE), adaptive)
    now, mean = START.double(), torch.zeros(ELEMENTS, dtype=torch.float64)
    for gradient in gradients(6):
        story.push(gradient, START, scale)

        g = scale * gradient.double()
        mean = 0.9 * mean + 0.1 * g * g
        strength = STRENGTH / (mean + 1e-3).sqrt() if adaptive else STRENGTH
        now = now - RATE * (g + strength * g * g * (now - START.double()))
        assert torch.allclose(story.parameters.double(), now, atol=1e-6)


@pytest.mark.parametrize("inner", [Sgd(learning_rate=RATE), Momentum(learning_rate=RATE)])
def test_without_delay_the_bits_are_those_of_the_inner_rule(inner: UpdateRule) -> None:
    story, plain = (
        Story(inner),
        downpour_shards.build(ShardState(index=0, incarnation=1, is_initialised=True), inner),
    )
    plain.configure(placements.a_placement({PARAMETERS: ELEMENTS}, 1, inner.kept), 4 * ELEMENTS)
    plain.admit(SenderIncarnation(0, 1))
    assert plain.state.values is not None
    single = plain.state.values.tensor(PARAMETERS)
    single.copy_(START)
    for number, gradient in enumerate(gradients(5), start=1):
        story.push(gradient, story.parameters.clone())
        header = a_header(
            Verb.PUSH,
            incarnation=1,
            receiver_incarnation=1,
            version_incarnation=1,
            sequence=number,
            vector=1,
            element_type=ElementType.FLOAT32,
            chunks=1,
            count=ELEMENTS,
            scale=1.0,
        )
        list(plain.handle(header, gradient.numpy().data.cast("B")))
    assert torch.equal(story.parameters, single)


def test_what_a_replica_computes_with_is_the_prediction() -> None:
    story = Story(PredictedMomentum(learning_rate=RATE, momentum=0.5))
    (gradient,) = gradients(1)
    assert torch.equal(story.fetch(), START), "nothing moves yet"

    story.push(gradient, START)

    # The push was not stale, so that the velocity of -rate * gradient is followed for one update.
    ahead = START - RATE * gradient * (1.0 + 0.5)
    assert torch.allclose(story.fetch(), ahead, atol=1e-6)
    assert torch.allclose(story.parameters, START - RATE * gradient, atol=1e-6)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("adaptive", [None, Adaptive(mean_square_decay=0.9, epsilon=1e-3)])
def test_the_error_of_the_prediction_is_what_is_corrected(
    adaptive: Adaptive | None, dtype: torch.dtype, bound: float
) -> None:
    """Section 4 of Sato et al. 2017, with four replicas that take turns: each is 3 updates late."""
    rate, momentum, late = 0.01, 0.8, 3
    inner = PredictedMomentum(learning_rate=rate, momentum=momentum)
    rule = rule_for(Compensated.of(inner, STRENGTH, adaptive))
    slope = torch.linspace(0.5, 2.0, ELEMENTS, dtype=torch.float64)
    zeros = torch.zeros(ELEMENTS, dtype=torch.float64)
    w, velocity, mean = START.double(), zeros.clone(), zeros.clone()
    state = {name: torch.zeros(ELEMENTS, dtype=dtype) for name in rule.config.kept}
    start = START.to(dtype)
    ours = Chunk(start.clone(), state, {})
    given = [(start, START.double())] * (late + 1)
    largest = 0.0
    for step in range(100):
        computed_on, then = given[step % (late + 1)]
        gradient = slope.to(dtype) * computed_on
        curvature = gradient * gradient * computed_on
        push = PushContext(
            sender=0, staleness=late, mean_staleness=late, steps=step, rate=rate, live_replicas=4
        )
        rule.apply(ours._replace(pushed={"curvature": curvature}), gradient, push)
        served = torch.empty_like(computed_on)
        fetch = FetchContext(
            sender=0, mean_staleness=late, steps=step + 1, rate=rate, live_replicas=4
        )
        rule.serve(ours, fetch, served)

        g = slope * then
        mean = 0.9 * mean + 0.1 * g * g
        strength = STRENGTH / (mean + 1e-3).sqrt() if adaptive else STRENGTH
        correction = strength * g * g * (w - then)
        velocity = momentum * velocity - rate * (g + correction)
        w = w + velocity
        prediction = w + velocity * sum(momentum**ahead for ahead in range(1, late + 2))
        assert float((served.double() - prediction).abs().max()) <= bound
        assert float((ours.parameters.double() - w).abs().max()) <= bound
        given[step % (late + 1)] = served, prediction
        largest = max(largest, float(correction.abs().max()))
    assert largest > 0.1


@pytest.mark.parametrize("chunk", range(9))
def test_a_shard_that_comes_back_between_two_chunks_of_a_pair_wants_both_again(
    chunk: int, tmp_path: Path
) -> None:
    story, gradient = Story(Sgd(learning_rate=RATE)), gradients(1)[0]
    for number in range(chunk):
        story.send(number, gradient, START + 1, 1.0)

    story.restart(tmp_path)

    known = story.shard.state.deliveries.of(0, 1)
    assert known.next_chunk == (chunk - chunk % 2 if chunk < 8 else 0)
    for number in range(known.next_chunk, 8 if chunk < 8 else 0):
        story.send(number, gradient, START + 1, 1.0)
    wanted = START - RATE * (gradient + STRENGTH * gradient * gradient * -1.0)
    assert torch.allclose(story.parameters, wanted, atol=1e-6)


def test_what_is_pushed_beside_a_gradient_has_to_be_finite() -> None:
    story, gradient = Story(Sgd(learning_rate=RATE)), gradients(1)[0]
    before = story.parameters.clone()
    with pytest.raises(AssertionError, match="NOT_FINITE"):
        story.send(0, gradient, torch.full((ELEMENTS,), math.inf), 1.0)
    assert torch.equal(story.parameters, before)


def test_what_a_sender_left_half_is_dropped_with_it() -> None:
    story = Story(Sgd(learning_rate=RATE))
    story.send(0, gradients(1)[0], START, 1.0)
    stage: Any = story.shard.stage
    assert len(stage._beside) == 1
    story.shard.fence(SenderIncarnation(0, 1))
    assert not stage._beside


def test_it_is_what_its_inner_rule_is() -> None:
    inner = PredictedMomentum(learning_rate=RATE, momentum=0.5)
    plain, adaptive = Compensated.of(inner, 1.0, None), Compensated.of(inner, 1.0, Adaptive())
    assert (plain.name, plain.kept, plain.serves) == (inner.name, inner.kept, inner.serves)
    assert (adaptive.name, adaptive.kept) == (
        "adaptive_predicted_momentum",
        ("velocity", "mean_square"),
    )
    assert plain.zero_is_a_step
    assert plain.local_learning_rate == 0
