"""A model whose parameters a group divides by rows, with torch's fully_shard (FSDP2).

Its messages go the way of all others of the group, so that whoever waits in a layer of the model
ends when the group does. A process has one such group in its life, since torch knows one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from disttrain.errors import DistTrainError
from disttrain.groups.gloo import GlooGroup

_NAME = "disttrain"
_AVERAGE = distributed.ReduceOp.AVG


class CannotShard(DistTrainError):
    """A model, or a version of torch, with which fully_shard does not go."""


def shard(model: nn.Module, group: GlooGroup, device: torch.device) -> None:
    """Divide a model without values, and give it memory for this process's rows.

    Blocks are divided one by one, and gathered one by one: see `blocks`. Raises CannotShard.
    """
    if not hasattr(FSDPModule, "set_custom_all_gather"):
        message = f"it needs torch 2.9 or newer, and this is {torch.__version__}"
        raise CannotShard(message)
    mesh = DeviceMesh.from_group(_known(group), device.type)
    try:
        for block in blocks(model):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise CannotShard(str(error)) from error
    gathers: Any = _AllGather(group)
    reduces: Any = _ReduceScatter(group)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(gathers)
            module.set_custom_reduce_scatter(reduces)
    model.to_empty(device=device)


def forget_call(model: nn.Module) -> None:
    """Let the next call begin anew, after one that has failed within the model.

    Older versions of torch cannot: the next call fails too.
    """
    # One that was never called has nothing to forget, and torch finds nothing to reset.
    if hasattr(model, "reset_iter_state"):
        with suppress(AttributeError):
            cast("Any", model).reset_iter_state()


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """What is gathered at once: the members of outermost lists and sequences of modules.

    One that shares a parameter with others is gathered with the model, as all that is in none.
    """
    owners = _owners(model)
    for block in dict.fromkeys(_members(model)):
        inside = _owners(block)
        if inside and all(owners[each] == count for each, count in inside.items()):
            yield block


def _owners(module: nn.Module) -> Counter[int]:
    """How many modules have each parameter, by its identity."""
    return Counter(
        id(parameter) for each in module.modules() for parameter in each.parameters(recurse=False)
    )


def _members(module: nn.Module) -> Iterator[nn.Module]:
    is_list = isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential)
    for child in module.children():
        # Nobody calls a list.
        if is_list and not isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield child
        else:
            yield from _members(child)


def _known(group: GlooGroup) -> Any:
    """The group, as torch wants to know it of a mesh."""
    if distributed.is_initialized():
        return distributed.group.WORLD
    distributed.Backend.register_backend(_NAME, lambda *_: group.backend, devices=["cpu", "cuda"])
    distributed.init_process_group(
        _NAME,
        store=distributed.HashStore(),  # type: ignore[attr-defined]
        rank=group.peers.rank,
        world_size=group.peers.size,
    )
    return distributed.group.WORLD


class _Comm:
    """What torch asks for messages. See FSDPModule.set_custom_all_gather."""

    def __init__(self, group: GlooGroup) -> None:
        self._group = group

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Comm):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: object = None
    ) -> None:
        del group, async_op
        self._group.all_gather(output_tensor, input_tensor)


class _ReduceScatter(_Comm):
    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,
        op: Any,
        async_op: object = None,
    ) -> None:
        """By one sum, of which each takes its rows. Nobody has a use for the input afterwards."""
        del group, async_op
        rank, size = self._group.peers.rank, self._group.peers.size
        self._group.all_reduce(input_tensor)
        output_tensor.copy_(input_tensor.view(size, -1)[rank].view_as(output_tensor))
        if op == _AVERAGE:
            output_tensor.div_(size)
