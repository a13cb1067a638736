"""What a shard does about the staleness of gradients, beside the same in serial."""

import math

import pytest
import torch
from torch import Tensor, nn

from builders import downpour_shards, placements
from builders.placements import PARAMETERS
from builders.transports import a_chunk_header
from disttrain.job.staleness import Maximum, ScaleRate, Staleness
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.predicted_momentum import PredictedMomentum
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.arithmetic import rule_for
from disttrain.parameter_server.deliveries import WINDOW_PUSHES, Delivered, SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.update_rule import Chunk, FetchContext, PushContext
from disttrain.parameter_server.update_rules.predicted_momentum import reach_of
from disttrain.transport.header import Header, Reason, Verb

RATE, MOMENTUM, STEPS = 0.05, 0.9, 200


def a_push(rate: float = RATE) -> PushContext:
    return PushContext(
        sender=0, staleness=0, mean_staleness=0.0, steps=0, rate=rate, live_replicas=1
    )


def a_fetch(mean_staleness: float) -> FetchContext:
    return FetchContext(
        sender=0, mean_staleness=mean_staleness, steps=0, rate=RATE, live_replicas=1
    )


class Bowl:
    """The loss is half of x A x; its gradients need not be exact to be the same for both."""

    def __init__(self, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(3)
        self.curvature = torch.linspace(0.1, 1.0, 500, dtype=dtype)
        self.start = torch.randn(500, generator=generator, dtype=torch.float64).to(dtype)

    def gradient(self, at: Tensor) -> Tensor:
        return self.curvature * at


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_the_prediction_without_staleness_is_what_torchs_nesterov_keeps(
    dtype: torch.dtype, bound: float
) -> None:
    bowl = Bowl(dtype)
    kept = nn.Parameter(bowl.start.clone())
    theirs = torch.optim.SGD([kept], lr=RATE, momentum=MOMENTUM, nesterov=True)
    rule = rule_for(PredictedMomentum(learning_rate=RATE, momentum=MOMENTUM))
    chunk = Chunk(bowl.start.clone(), {"velocity": torch.zeros_like(bowl.start)}, {})
    for _ in range(STEPS):
        computed_on = torch.empty_like(bowl.start)
        rule.serve(chunk, a_fetch(0.0), computed_on)
        assert float((computed_on - kept.detach()).abs().max()) <= bound

        rule.apply(chunk, bowl.gradient(computed_on), a_push())
        kept.grad = bowl.gradient(kept.detach())
        theirs.step()


@pytest.mark.parametrize("staleness", [0, 1, 3, 27])
def test_a_prediction_is_where_the_velocity_alone_leads(staleness: int) -> None:
    rule = rule_for(PredictedMomentum(learning_rate=RATE, momentum=MOMENTUM))
    ours = [torch.randn(50, dtype=torch.float64) for _ in range(2)]
    chunk = Chunk(ours[0], {"velocity": ours[1]}, {})
    predicted = torch.empty(50, dtype=torch.float64)
    rule.serve(chunk, a_fetch(staleness + 0.9), predicted)

    for _ in range(staleness + 1):
        rule.apply(chunk, torch.zeros(50, dtype=torch.float64), a_push())

    assert torch.allclose(predicted, chunk.parameters, rtol=0, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.1, 0.7, 0.9, 0.99, 0.0])
def test_one_update_ahead_is_the_momentum_to_the_last_bit(momentum: float) -> None:
    assert reach_of(momentum, 1) == momentum
    wanted = math.fsum(momentum**power for power in range(1, 29))
    assert reach_of(momentum, 28) == pytest.approx(wanted, rel=1e-12)


def a_shard(rule: Sgd | Momentum, staleness: Staleness) -> Shard:
    state = ShardState(index=0, incarnation=1, is_initialised=True)
    shard = downpour_shards.build(state, rule, staleness=staleness)
    shard.configure(placements.a_placement({PARAMETERS: 16}, 1, rule.kept), 64)
    shard.admit(SenderIncarnation(0, 1))
    return shard


def push(shard: Shard, number: int, version: int, value: float = 1.0) -> Header:
    header = a_chunk_header(
        Verb.PUSH,
        16,
        incarnation=1,
        receiver_incarnation=1,
        sequence=number,
        version_incarnation=1 if version >= 0 else 7,
        version=max(0, version),
    )
    (answer,) = shard.handle(header, torch.full((16,), value).numpy().data.cast("B"))
    return answer.header


VERSIONS = [0, 0, 0, 3, 0, -1, 1]
"""That gradients are computed on; -1: of another incarnation of the shard."""


@pytest.mark.parametrize("rule", [Sgd(learning_rate=RATE), Momentum(learning_rate=RATE)])
def test_a_rate_over_the_staleness_is_that_of_a_serial_loop(rule: Sgd | Momentum) -> None:
    shard = a_shard(rule, Staleness(scale_rate=ScaleRate()))
    single = nn.Parameter(torch.zeros(16))
    serial = torch.optim.SGD([single], lr=RATE, momentum=getattr(rule, "momentum", 0.0))
    known: list[int] = []
    for number, version in enumerate(VERSIONS, start=1):
        staleness = number - 1 - version if version >= 0 else -1
        mean = sum(known) / max(1, len(known))
        serial.param_groups[0]["lr"] = RATE / max(1.0, staleness if staleness >= 0 else mean)
        single.grad = torch.ones(16)
        serial.step()

        assert push(shard, number, version).staleness == staleness

        if staleness >= 0:
            known.append(staleness)
        assert shard.state.values is not None
        ours = shard.state.values.tensor(PARAMETERS)
        assert torch.allclose(ours, single.detach(), rtol=1e-6, atol=0)


def test_the_mean_staleness_is_of_the_latest_pushes() -> None:
    state = Delivered()
    for _ in range(1000):
        state = state.met(40)
    assert state.mean_staleness == 40

    for _ in range(2 * WINDOW_PUSHES):
        state = state.met(3)
    assert 3 < state.mean_staleness < 40 / 2
    for _ in range(12 * WINDOW_PUSHES):
        state = state.met(3)
    assert math.floor(state.mean_staleness) == 3
    assert state.met(-1) == state


def test_the_mean_of_a_table_of_before_the_window_follows_soon() -> None:
    state = Delivered(staleness_sum=40_000_000, staleness_count=1_000_000)
    for _ in range(20):
        state = state.met(40)
    assert WINDOW_PUSHES <= state.staleness_count < 2 * WINDOW_PUSHES
    assert state.mean_staleness == pytest.approx(40, abs=0.5)


def hello(shard: Shard, number: int) -> Reason:
    """Why a push was refused, as a sender hears that has had no answer to it."""
    header = a_chunk_header(Verb.HELLO, 0, incarnation=1, sequence=number)
    (answer,) = shard.handle(header, memoryview(b""))
    return Reason(answer.header.reason)


def test_a_push_that_is_too_old_changes_nothing_and_the_next_one_may_be_fine() -> None:
    shard = a_shard(Sgd(learning_rate=1.0), Staleness(maximum=Maximum(updates=2)))
    for number in (1, 2, 3):
        assert push(shard, number, 0).verb == Verb.PUSHED
    assert shard.state.values is not None
    before = shard.state.values.tensor(PARAMETERS).clone()

    assert push(shard, 4, 0).reason == Reason.TOO_STALE
    assert push(shard, 4, 3).reason == Reason.TOO_STALE, "it is over"
    assert shard.refused["too_stale"] == 1, "one update, however many chunks it had"
    assert hello(shard, 4) is Reason.TOO_STALE
    assert torch.equal(shard.state.values.tensor(PARAMETERS), before)
    assert shard.state.count == 3

    assert push(shard, 5, 1).verb == Verb.PUSHED
    assert push(shard, 6, -1).verb == Verb.PUSHED, "nobody knows how old it is"
    assert push(shard, 7, 5, math.nan).reason == Reason.NOT_FINITE
    assert hello(shard, 7) is Reason.NOT_FINITE
