"""What shards do with differences, beside torch."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from builders import placements
from builders.jobs import a_job
from builders.transports import a_chunk_header
from disttrain.job.outer_rule import OuterMomentum, OuterRule
from disttrain.job.outer_rules.average import Average
from disttrain.job.outer_rules.blend import Blend
from disttrain.job.outer_rules.delayed_nesterov import DelayedNesterov
from disttrain.job.outer_rules.nesterov import Nesterov
from disttrain.parameter_server import arithmetic, strategies
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.update_rule import Chunk, PushContext
from disttrain.state.factors import Factors
from disttrain.transport.header import Reason, Verb

ELEMENTS, PUSHES = 97, 200


def a_push(rate: float, live_replicas: int = 1, age: int = 0) -> PushContext:
    return PushContext(
        sender=0,
        staleness=age,
        mean_staleness=0.0,
        steps=0,
        rate=rate,
        live_replicas=live_replicas,
    )


def pushed(config: OuterRule, live_replicas: int, dtype: torch.dtype) -> torch.Tensor:
    """The parameters after many differences, each of them cut into chunks."""
    rule, draw = arithmetic.rule_for(config), torch.Generator().manual_seed(0)
    parameters = torch.randn(ELEMENTS, generator=draw, dtype=dtype)
    state = {name: torch.zeros_like(parameters) for name in config.kept}
    for number in range(PUSHES):
        difference = torch.randn(ELEMENTS, generator=draw, dtype=dtype)
        for first in range(0, ELEMENTS, 13):
            cut = slice(first, first + 13)
            kept = {name: each[cut] for name, each in state.items()}
            chunk = Chunk(parameters[cut], kept, {}, number)
            rule.apply(chunk, difference[cut], a_push(config.learning_rate, live_replicas))
    return parameters


def by_torch(config: OuterMomentum, dtype: torch.dtype) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    parameter = nn.Parameter(torch.randn(ELEMENTS, generator=draw, dtype=dtype))
    optimizer = torch.optim.SGD(
        [parameter], lr=config.learning_rate, momentum=config.momentum, nesterov=True
    )
    for _ in range(PUSHES):
        parameter.grad = torch.randn(ELEMENTS, generator=draw, dtype=dtype)
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("kind", [Nesterov, DelayedNesterov])
def test_momentum_over_differences_of_one_replica_is_that_of_torch(
    kind: type[OuterMomentum],
) -> None:
    rule = kind(learning_rate=0.7, momentum=0.8)
    torch.testing.assert_close(
        pushed(rule, 1, torch.float32), by_torch(rule, torch.float32), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(
        pushed(rule, 1, torch.float64), by_torch(rule, torch.float64), rtol=1e-12, atol=1e-12
    )


def test_delayed_momentum_of_a_round_of_replicas_is_a_step_of_their_mean() -> None:
    """Synchronous DiLoCo: three replicas push in each round, and then fetch."""
    config = DelayedNesterov(learning_rate=0.7, momentum=0.8)
    rule, draw = arithmetic.rule_for(config), torch.Generator().manual_seed(1)
    found, plain = torch.zeros(7), nn.Parameter(torch.zeros(7))
    state = {name: torch.zeros(7) for name in config.kept}
    optimizer = torch.optim.SGD([plain], lr=0.7, momentum=0.8, nesterov=True)
    for round_ in range(40):
        differences = torch.randn(3, 7, generator=draw)
        for number, difference in enumerate(differences):
            chunk = Chunk(found, state, {}, 3 * round_ + number)
            rule.apply(chunk, difference, a_push(0.7, 3))
        plain.grad = differences.mean(0)
        optimizer.step()

    torch.testing.assert_close(found, plain.detach(), rtol=1e-5, atol=1e-5)


def test_a_blend_with_one_replica_has_the_pushed_bits() -> None:
    rule = arithmetic.rule_for(Blend())
    found, pushed_ones = torch.tensor([1e8, 3.0]), torch.tensor([1e-8, 0.1])
    rule.apply(Chunk(found, {}, {}), pushed_ones, a_push(1.0, 1))
    assert torch.equal(found, pushed_ones)

    rule.apply(Chunk(found, {}, {}), torch.tensor([4.0, 8.0]), a_push(1.0, 4))
    torch.testing.assert_close(found, torch.tensor([1.0, 2.075]))


@pytest.mark.parametrize(("age", "whole"), [(-1, 1.0), (0, 1.0), (4, 1.0), (8, 0.5), (40, 0.1)])
def test_a_push_beyond_the_full_age_counts_less(age: int, whole: float) -> None:
    rule, parameters = arithmetic.rule_for(Average(full_age=4)), torch.zeros(3)
    rule.apply(Chunk(parameters, {}, {}), torch.full((3,), -1.0), a_push(1.0, 2, age))

    torch.testing.assert_close(parameters, torch.full((3,), 0.5 * whole))


def test_replicas_that_begin_together_leave_their_mean() -> None:
    """Three replicas at 1, 2 and 6, which began at 0."""
    rule, parameters = arithmetic.rule_for(Average()), torch.zeros(5)
    for own in (1.0, 2.0, 6.0):
        rule.apply(Chunk(parameters, {}, {}), torch.full((5,), -own), a_push(1.0, 3))

    torch.testing.assert_close(parameters, torch.full((5,), 3.0))


def test_factors_of_parameters_are_those_of_the_replicas_steps_alone() -> None:
    job = a_job("spec.strategy.downpour=null", "spec.strategy.localSteps={outer: {average: {}}}")
    state = ShardState(index=0, incarnation=1, is_initialised=True)
    shard = Shard(strategies.stages(job.spec, state, Records(incarnation=1)))
    placement = placements.a_placement({placements.PARAMETERS: 4}, 1)
    factors = (Factors(0, 2, 0.5, 1.0),)
    shard.configure(replace(placement, factors=factors), 16)
    shard.admit(SenderIncarnation(0, 1))
    push = a_chunk_header(Verb.PUSH, 4, incarnation=1, receiver_incarnation=1, sequence=1)

    list(shard.handle(push, torch.ones(4).numpy().data.cast("B")))

    assert state.values is not None
    assert state.values.tensor(placements.PARAMETERS).tolist() == [-1.0] * 4


@pytest.mark.parametrize(("version", "reason"), [(6, Reason.NONE), (5, Reason.TOO_STALE)])
def test_a_difference_beyond_the_maximum_age_is_not_applied(version: int, reason: Reason) -> None:
    job = a_job("spec.strategy.downpour=null", "spec.strategy.localSteps={maximumAge: 4}")
    state = ShardState(index=0, incarnation=1, is_initialised=True, count=10)
    shard = Shard(strategies.stages(job.spec, state, Records(incarnation=1)))
    shard.configure(placements.a_placement({placements.PARAMETERS: 4}, 1), 16)
    shard.admit(SenderIncarnation(0, 1))
    push = a_chunk_header(Verb.PUSH, 4, incarnation=1, receiver_incarnation=1, sequence=1)
    push = push._replace(version_incarnation=1, version=version)

    (answer,) = shard.handle(push, torch.ones(4).numpy().data.cast("B"))

    assert answer.header.reason == reason
    assert state.values is not None
    moved = -1.0 if reason == Reason.NONE else 0.0
    assert state.values.tensor(placements.PARAMETERS).tolist() == [moved] * 4
