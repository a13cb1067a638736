"""What a shard does about the staleness of gradients, beside the same in serial."""

import math

import pytest
import torch
from torch import Tensor, nn

from builders import downpour_shards, placements
from builders.placements import PARAMETERS
from builders.transports import a_chunk_header
from disttrain.job.staleness import Maximum, Policy, ScaleRate, Staleness
from disttrain.job.update_rule import UpdateRule
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.predicted_momentum import PredictedMomentum
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.arithmetic import rule_for
from disttrain.parameter_server.deliveries import WINDOW_PUSHES, Delivered, SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.messages import Side
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


@pytest.mark.parametrize("fits", [True, False])
def test_a_prediction_is_written_where_it_is_to_lie_if_it_fits(*, fits: bool) -> None:
    shard = a_shard(PredictedMomentum(learning_rate=1.0, momentum=0.5), Staleness(), chunk=16)
    values = shard.stage.values
    values.tensor(PARAMETERS).copy_(torch.arange(16.0))
    values.tensor(PARAMETERS.beside("velocity")).fill_(2.0)
    fetch = a_chunk_header(
        Verb.FETCH,
        2,
        incarnation=1,
        receiver_incarnation=1,
        vector=values.share.placement.number(PARAMETERS.beside("prediction")),
        chunk=1,
        first=4,
    )
    place = torch.zeros(8 if fits else 3)

    written = []
    for answer in shard.handle(fetch, place.numpy().data.cast("B")):
        there = torch.frombuffer(answer.payload, dtype=torch.float32)
        written.append(there.clone())

    assert torch.equal(torch.cat(written), torch.arange(4.0, 12.0) + 1.0)
    wanted = torch.cat(written) if fits else torch.zeros(3)
    assert torch.equal(place, wanted), "all of it, or nothing"


def a_shard(rule: UpdateRule, staleness: Staleness, chunk: int = 64) -> Shard:
    state = ShardState(index=0, incarnation=1, is_initialised=True)
    shard = downpour_shards.build(state, rule, staleness=staleness)
    named = rule.kept if rule.serves is None else (*rule.kept, rule.serves)
    shard.configure(placements.a_placement({PARAMETERS: 16}, 1, named), chunk)
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


class TwoReplicas:
    """A shard whose pushes wait, with a clock that the test sets."""

    def __init__(self, most: int) -> None:
        maximum = Maximum(updates=most, policy=Policy.WAIT)
        self.shard = a_shard(Sgd(learning_rate=1.0), Staleness(maximum=maximum))
        self.shard.admit(SenderIncarnation(1, 1))
        self.seconds = 0.0
        self.shard.state.clock = lambda: self.seconds
        self._number = 0

    def asks(self, verb: Verb, sender: int, **fields: int) -> Header:
        header = a_chunk_header(verb, 1, sender=sender, incarnation=1, receiver_incarnation=1)
        asked = header._replace(**fields)
        return next(iter(self.shard.handle(asked, memoryview(b"")))).header

    def fetches(self, sender: int, steps: int = 1) -> int:
        """The version of what it gets."""
        self._number += 1
        asked = self.asks(Verb.FETCH, sender, sequence=self._number, local_steps=steps)
        return asked.version

    def says_hello(self, sender: int, number: int, side: Side = Side.PUSH) -> Header:
        return self.asks(Verb.HELLO, sender, sequence=number, count=side)

    def pushes(self, sender: int, number: int, version: int, value: float = 1.0) -> Header:
        header = a_chunk_header(
            Verb.PUSH,
            16,
            sender=sender,
            incarnation=1,
            receiver_incarnation=1,
            sequence=number,
            version_incarnation=1,
            version=version,
        )
        payload = torch.full((16,), value).numpy().data.cast("B")
        return next(iter(self.shard.handle(header, payload))).header


def test_a_push_comes_again_when_the_older_gradient_is_here() -> None:
    two = TwoReplicas(most=1)
    assert [two.fetches(sender) for sender in (0, 1)] == [0, 0]
    assert two.pushes(0, 1, two.fetches(0)).verb == Verb.PUSHED

    assert two.pushes(0, 2, two.fetches(0)).reason == Reason.BUSY
    assert two.asks(Verb.PUSH, 0, sequence=2, chunk=1, chunks=2).reason == Reason.OUT_OF_ORDER
    assert two.says_hello(0, 2).reason == Reason.BUSY, "no chunk is sent in vain"
    assert two.says_hello(0, 2, Side.FETCH).verb == Verb.WELCOME
    assert two.says_hello(1, 1).verb == Verb.WELCOME
    two.seconds = 0.5
    answer = two.pushes(1, 1, 0)
    assert (answer.verb, answer.staleness) == (Verb.PUSHED, 1)

    welcome = two.says_hello(0, 2)
    assert (welcome.verb, welcome.sequence, welcome.chunk) == (Verb.WELCOME, 2, 0)
    assert two.pushes(0, 2, 1).verb == Verb.PUSHED
    assert two.shard.stage.waited_seconds == pytest.approx(0.5)
    assert not two.shard.refused, "nothing was computed in vain"


@pytest.mark.parametrize("gone", ["fenced", "silent", "not finite", "too old"])
def test_nobody_waits_for_who_does_not_push(gone: str) -> None:
    two = TwoReplicas(most=1)
    for sender in (0, 1):
        two.fetches(sender)
    assert two.pushes(0, 1, 0).verb == Verb.PUSHED
    assert two.pushes(0, 2, two.fetches(0)).reason == Reason.BUSY

    if gone == "fenced":
        two.shard.fence(SenderIncarnation(1, 1))
    elif gone == "silent":
        two.seconds = 2.1
    elif gone == "not finite":
        assert two.pushes(1, 1, 0, math.nan).reason == Reason.NOT_FINITE
    else:
        two.shard.state.count += 1
        assert two.pushes(1, 1, 0).reason == Reason.TOO_STALE

    assert two.says_hello(0, 2).verb == Verb.WELCOME
    assert two.pushes(0, 2, 1).verb == Verb.PUSHED


def test_a_late_fence_of_an_incarnation_says_nothing_of_the_next_one() -> None:
    two = TwoReplicas(most=1)
    two.shard.admit(SenderIncarnation(0, 2))
    two.asks(Verb.FETCH, 0, incarnation=2, sequence=1, local_steps=1)
    two.shard.state.count += 1
    two.fetches(1)
    two.shard.fence(SenderIncarnation(0, 1))
    assert two.pushes(1, 1, 1).reason == Reason.BUSY


def test_what_evaluations_fetch_is_no_gradient_to_come() -> None:
    two = TwoReplicas(most=1)
    for push, steps, reason in ((1, 0, Reason.NONE), (2, 1, Reason.BUSY)):
        two.fetches(1, steps)
        two.shard.state.count += 1
        assert two.pushes(0, push, two.fetches(0)).reason == reason
