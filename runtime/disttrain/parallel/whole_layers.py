"""What is to be known of a layer that lies whole on one partition: it is called without values."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from disttrain.parallel.partitioned import CannotPartition, Shape

_MIXED = "what it makes of a sample depends on others of the batch"


class Traced(NamedTuple):
    """What a call has shown."""

    output: Shape
    needs_batch: str
    """Why it computes something else with a slice of a batch; empty if it does not."""


def traced(module: nn.Module, name: str, shape: Shape) -> Traced:
    """`shape`: of a sample before it. Raises CannotPartition."""
    given = _undivided(shape)
    called = on_meta(module)
    before = [(each, each._version) for each in called.buffers()]  # noqa: SLF001
    try:
        # A batch of two: some layers need several samples.
        samples, *found = called(torch.empty(2, *given, device="meta")).shape
    except Exception as error:
        raise CannotPartition(f"layer {name}: it does not take {given}: {error}") from error
    if samples != 2:
        raise CannotPartition(f"layer {name}: gives {samples} samples for 2; it has to keep them")
    if len(found) not in {1, 3}:
        raise CannotPartition(
            f"layer {name}: gives {len(found)} dimensions for a sample, not 1 or 3"
        )
    after = (
        Shape(channels=1, height=found[0], width=1, is_flat=True)
        if len(found) == 1
        else Shape(channels=found[0], height=found[1], width=found[2])
    )
    changed = any(
        each is not was or each._version != version  # noqa: SLF001  It has no other.
        for each, (was, version) in zip(called.buffers(), before, strict=True)
    )
    return Traced(after, _needs_batch(module, changed=changed))


@torch.enable_grad()
def mixing(module: nn.Module, shape: Shape) -> str:
    """Why what comes out for a sample depends on another one; empty: no gradient says that it does.

    `shape`: of a sample before it. A module without values can tell nothing.
    """
    values = [*module.parameters(), *module.buffers()]
    like = next((each for each in values if each.is_floating_point()), torch.empty(0))
    if like.is_meta:
        return ""
    x = torch.linspace(-1.0, 1.0, 2 * shape.elements, dtype=like.dtype, device=like.device)
    x = x.view(2, *_undivided(shape)).requires_grad_()
    # A copy, since a call may change buffers and what else the module counts in.
    called = copy.deepcopy(module)
    with torch.random.fork_rng([] if like.device.type == "cpu" else [like.device]):
        try:
            # Not a leaf: the module may change it in place.
            y: Tensor = called(x.clone())
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            return f"two samples of numbers from -1 to 1 cannot be tried: {error}"
    if not y.requires_grad:
        return ""
    return _MIXED if _depends(y, x, of=0, on=1) or _depends(y, x, of=1, on=0) else ""


def _depends(y: Tensor, x: Tensor, *, of: int, on: int) -> bool:
    weight, some = torch.zeros_like(y), y[of]
    # Not the same for all elements, of which a softmax has the same sum whatever x is.
    weights = torch.linspace(1.0, 2.0, some.numel(), dtype=y.dtype, device=y.device)
    weight[of] = weights.view_as(some)
    (found,) = torch.autograd.grad(y, x, weight, retain_graph=True, allow_unused=True)
    # No number: an infinite derivative, times the zeros of the weight.
    return found is not None and bool(found[on].nan_to_num(0.0).any())


def _undivided(shape: Shape) -> tuple[int, ...]:
    return (shape.elements,) if shape.is_flat else (shape.channels, shape.height, shape.width)


def on_meta(module: nn.Module) -> nn.Module:
    """A copy without values, in single precision."""
    return without_values(module).float()


def without_values(module: nn.Module) -> nn.Module:
    """A copy on the device meta, with the element types that it has."""
    values = [*module.parameters(), *module.buffers()]
    # So nothing is copied that is dropped again.
    empty = {id(value): _empty(value) for value in values}
    return copy.deepcopy(module, empty)


def _empty(value: Tensor) -> Tensor:
    made = torch.empty_like(value, device="meta")
    return nn.Parameter(made, value.requires_grad) if isinstance(value, nn.Parameter) else made


def _needs_batch(module: nn.Module, *, changed: bool) -> str:
    for each in module.modules():
        is_of_samples = isinstance(each, nn.modules.instancenorm._InstanceNorm)  # noqa: SLF001
        if isinstance(each, _NormBase) and (not is_of_samples or each.track_running_stats):
            return f"a {type(each).__name__} has statistics of a whole batch"
    return "it changes its buffers in each call" if changed else ""
