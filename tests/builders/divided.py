"""A model in one process beside the same model in partitions: outputs and all gradients."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from builders.partitions import in_partitions
from disttrain.parallel import Grid, Partitioned, partition
from disttrain.parallel.communicator import Communicator, Traffic
from disttrain.parallel.ways import Way
from disttrain.parallel.windows import Plan

GRIDS = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (2, 3), (1, 4)]
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True, slots=True)
class Found:
    output: Tensor
    of_input: Tensor
    """Gradient."""
    of_parameters: Mapping[str, Tensor]
    traffic: Sequence[Traffic] = ()


def messages(plan: Plan) -> int:
    """One for each partition that needs something of another one."""
    return sum(1 for rank in range(len(plan.owned)) for _ in plan.sent_by(rank))


def elements(plan: Plan) -> int:
    """Of one sample and channel, that cross a border."""
    return sum(box.area for rank in range(len(plan.owned)) for _, box in plan.sent_by(rank))


def undivided(model: nn.Module, x: Tensor, weight: Tensor, *, of_input: bool = True) -> Found:
    """`weight`: what the output is multiplied by before it is summed up.

    `of_input`: whether the input has a gradient, as that of a layer and not of a model.
    """
    model, x = copy.deepcopy(model), x.clone().requires_grad_(of_input)
    y = model(x)
    (y * weight).sum().backward()
    return Found(y.detach(), gradient(x), {n: gradient(p) for n, p in model.named_parameters()})


def divided(
    model: nn.Sequential,
    grid: tuple[int, int],
    x: Tensor,
    weight: Tensor,
    overrides: Mapping[str, Way] | None = None,
    *,
    of_input: bool = True,
    micro_batches: int | None = None,
) -> Found:
    def one(peers: Communicator) -> tuple[Tensor, Tensor, Partitioned]:
        made = partition(
            *(copy.deepcopy(model), Grid(*grid), peers, x.shape[1:], overrides),
            micro_batches=micro_batches,
        )
        given = x.clone().requires_grad_(of_input)
        y = made(given)
        (y * weight).sum().backward()
        return y.detach(), gradient(given), made

    found = in_partitions(grid[0] * grid[1], one)
    for y, _, _ in found:
        assert torch.equal(y, found[0][0])
    gradients = torch.stack([each for _, each, _ in found]).sum(0)
    parts = [made for _, _, made in found]
    of_parameters = whole_of(model, parts, gradient)
    return Found(found[0][0], gradients, of_parameters, [made.peers.traffic for made in parts])


def whole_of(
    model: nn.Module, parts: Sequence[Partitioned], value: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Something of each parameter, put together from the partitions that have a part of it."""
    found = {name: torch.full_like(each, torch.nan) for name, each in model.named_parameters()}
    for part in parts:
        own = dict(part.named_parameters())
        assert own.keys() == part.pieces.keys() <= found.keys()
        for name, index in part.pieces.items():
            into = found[name] if index is None else found[name][index]
            assert into.shape == own[name].shape
            into.copy_(value(own[name]))
    return {name: each.detach() for name, each in found.items()}


def gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def far(found: Tensor, wanted: Tensor) -> float:
    """Norm of the difference over the norm."""
    return float((found - wanted).detach().norm() / wanted.detach().norm().clamp(min=1e-3))


def furthest(found: Found, wanted: Found) -> float:
    """Of output and gradients."""
    assert found.of_parameters.keys() == wanted.of_parameters.keys()
    return max(
        far(found.output, wanted.output),
        far(found.of_input, wanted.of_input),
        *(far(each, wanted.of_parameters[name]) for name, each in found.of_parameters.items()),
        0.0,
    )
