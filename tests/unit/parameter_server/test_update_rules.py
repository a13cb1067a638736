"""The rules on flat vectors cut into chunks, beside torch.optim on whole tensors."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from builders import placements
from disttrain.job.update_rule import UpdateRule
from disttrain.job.update_rules.adagrad import Adagrad
from disttrain.job.update_rules.adam import Adam
from disttrain.job.update_rules.adamw import AdamW
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.rmsprop import RmsProp
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.arithmetic import rule_for
from disttrain.parameter_server.update_rule import Chunk, PushContext
from disttrain.state.vector import SINGLE

SHAPES = ((33, 17), (5,), (), (64, 3, 3, 3), (1,), (7, 1001))
STEPS = 200
RATE = 0.0371


def flat_run(
    config: UpdateRule, shards: int, chunk_elements: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """200 steps, every shard's range by itself, chunk by chunk."""
    generator = torch.Generator().manual_seed(0)
    parameters = flat(generator).to(dtype)
    rule = rule_for(config)
    initial = config.initial_state.items()
    state = {name: torch.full_like(parameters, value) for name, value in initial}
    placement = placements.a_placement({SINGLE: parameters.numel()}, shards)
    ranges = [placement.ranges(holder)[SINGLE] for holder in range(shards)]
    for step in range(STEPS):
        gradient = flat(generator).to(dtype)
        for part in ranges:
            for first in range(part.first, part.end, chunk_elements):
                cut = slice(first, min(first + chunk_elements, part.end))
                views = {name: vector[cut] for name, vector in state.items()}
                chunk = Chunk(parameters[cut], views, {}, steps=step)
                rule.apply(chunk, gradient[cut], a_push(config.learning_rate))
    return parameters


def a_push(rate: float) -> PushContext:
    return PushContext(
        sender=0, staleness=0, mean_staleness=0.0, steps=0, rate=rate, live_replicas=1
    )


def flat(generator: torch.Generator) -> Tensor:
    return torch.cat([torch.randn(shape, generator=generator).flatten() for shape in SHAPES])


def torch_run(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    initial = [torch.randn(shape, generator=generator) for shape in SHAPES]
    parameters = [nn.Parameter(values.to(dtype)) for values in initial]
    optimizer = make(parameters)
    for _ in range(STEPS):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(dtype)
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("chunk_elements", [48, 1000, 1 << 18])
def test_sgd_has_the_bits_of_torch(shards: int, chunk_elements: int) -> None:
    ours = flat_run(Sgd(learning_rate=RATE), shards, chunk_elements)
    theirs = torch_run(lambda p: torch.optim.SGD(p, lr=RATE))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_agrees_with_torch(shards: int, *, nesterov: bool) -> None:
    config = Momentum(learning_rate=0.01, nesterov=nesterov)
    theirs = torch_run(lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=nesterov))
    assert difference(flat_run(config, shards, 1000), theirs) < 1e-6


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("initial", [0.0, 0.1])
def test_adagrad_agrees_with_torch(shards: int, initial: float) -> None:
    config = Adagrad(learning_rate=0.05, initial_accumulator=initial)
    theirs = torch_run(lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=initial))
    assert difference(flat_run(config, shards, 1000), theirs) < 1e-6


RULES: dict[str, tuple[UpdateRule, Callable[..., torch.optim.Optimizer]]] = {
    "nesterov": (
        Momentum(learning_rate=0.01, nesterov=True),
        partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True),
    ),
    "adam": (Adam(learning_rate=0.01), partial(torch.optim.Adam, lr=0.01)),
    "adam, other betas": (
        Adam(learning_rate=0.01, beta1=0.5, beta2=0.9, epsilon=1e-3),
        partial(torch.optim.Adam, lr=0.01, betas=(0.5, 0.9), eps=1e-3),
    ),
    "adamw": (AdamW(learning_rate=0.01), partial(torch.optim.AdamW, lr=0.01)),
    "adamw, other decay": (
        AdamW(learning_rate=0.003, weight_decay=0.3),
        partial(torch.optim.AdamW, lr=0.003, weight_decay=0.3),
    ),
    "rmsprop": (
        RmsProp(learning_rate=0.01, alpha=0.9, epsilon=1e-6),
        partial(torch.optim.RMSprop, lr=0.01, alpha=0.9, eps=1e-6),
    ),
    "rmsprop, centered": (
        RmsProp(learning_rate=0.01, centered=True),
        partial(torch.optim.RMSprop, lr=0.01, centered=True),
    ),
    "rmsprop, centered, other mean": (
        RmsProp(learning_rate=0.01, alpha=0.9, epsilon=1e-6, centered=True),
        partial(torch.optim.RMSprop, lr=0.01, alpha=0.9, eps=1e-6, centered=True),
    ),
}
PRECISIONS = [(torch.float32, 1e-6), (torch.float64, 1e-12)]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("dtype", "most"), PRECISIONS, ids=["float32", "float64"])
@pytest.mark.parametrize("name", RULES)
def test_other_rules_agree_with_torch(
    name: str, dtype: torch.dtype, most: float, shards: int
) -> None:
    config, make = RULES[name]
    ours = flat_run(config, shards, 1000, dtype)
    assert difference(ours, torch_run(make, dtype)) < most


def test_adamw_has_the_bits_of_torch_where_a_chunk_is_a_parameter() -> None:
    ours, theirs = torch.randn(1 << 14), nn.Parameter(torch.zeros(1 << 14))
    theirs.data.copy_(ours)
    optimizer = torch.optim.AdamW([theirs], lr=0.01, fused=True)
    state = {name: torch.zeros_like(ours) for name in AdamW.kept}
    rule = rule_for(AdamW(learning_rate=0.01))
    for step in range(STEPS):
        gradient = torch.randn(1 << 14)
        theirs.grad = gradient.clone()
        optimizer.step()
        rule.apply(Chunk(ours, state, {}, steps=step), gradient, a_push(0.01))
    assert torch.equal(ours, theirs)


def test_a_gradient_that_was_always_zero_gives_no_nan() -> None:
    parameters, total = torch.ones(100), torch.zeros(100)
    rule = rule_for(Adagrad(learning_rate=0.05))
    chunk = Chunk(parameters, {"sum_of_squares": total}, {})
    rule.apply(chunk, torch.zeros(100), a_push(0.05))
    assert torch.equal(parameters, torch.ones(100))


def test_a_centered_root_of_equal_gradients_is_a_number() -> None:
    rule = rule_for(RmsProp(learning_rate=1e-9, centered=True))
    gradient = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    chunk = Chunk(torch.ones(1000), {"mean_of_squares": gradient**2, "mean": gradient.clone()}, {})
    for _ in range(STEPS):
        rule.apply(chunk, gradient, a_push(1e-9))
    assert chunk.parameters.isfinite().all()


@pytest.mark.parametrize(
    "config",
    [
        Sgd(learning_rate=0.1),
        Momentum(learning_rate=0.1, nesterov=True),
        Adagrad(learning_rate=0.1),
        AdamW(learning_rate=0.1),
        RmsProp(learning_rate=0.1),
        RmsProp(learning_rate=0.1, centered=True),
    ],
)
def test_the_gradient_is_left_as_it_is(config: UpdateRule) -> None:
    gradient = torch.randn(1000)
    before = gradient.clone()
    rule = rule_for(config)
    state = {name: torch.zeros(1000) for name in config.initial_state}
    rule.apply(Chunk(torch.randn(1000), state, {}), gradient, a_push(0.1))
    assert torch.equal(gradient, before)


def difference(ours: Tensor, theirs: Tensor) -> float:
    return float(torch.linalg.vector_norm(ours - theirs) / torch.linalg.vector_norm(theirs))
