"""The values of a partition's part of the model: what all have, and what a file has."""

import copy
from collections.abc import Mapping

import safetensors
import torch
from torch import Tensor, nn

from disttrain.checkpoint import copies
from disttrain.groups.steps import Collective
from disttrain.parallel.layers.partitioned import Index
from disttrain.parallel.partitioned import Partitioned


@torch.no_grad()
def share(part: Partitioned, group: Collective) -> None:
    """Give all partitions the first one's values of what each of them has. Raises GroupLost."""
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for each in _of_all(part):
        by_type.setdefault(each.dtype, []).append(each)
    for tensors in by_type.values():
        flat = torch.cat([each.detach().reshape(-1) for each in tensors])
        group.broadcast(flat)
        parts = torch.split(flat, [each.numel() for each in tensors])
        for each, found in zip(tensors, parts, strict=True):
            each.copy_(found.view(each.shape))


def _of_all(part: Partitioned) -> list[Tensor]:
    own = set(part.own_buffers)
    return [
        *(parameter for _, parameter in everywhere(part)),
        *(each for name, each in part.named_buffers() if name not in own),
    ]


def everywhere(part: Partitioned) -> list[tuple[str, nn.Parameter]]:
    """The parameters of which each partition has all."""
    pieces = part.pieces
    return [each for each in part.named_parameters() if pieces.get(each[0]) is None]


def told(text: str, group: Collective, nbytes: int | None = None) -> str:
    """The first process's text, in all. `nbytes`: of it, for the others. Raises GroupLost."""
    if nbytes is None:
        content = torch.tensor(list(text.encode()), dtype=torch.uint8)
    else:
        content = torch.empty(nbytes, dtype=torch.uint8)
    group.broadcast(content)
    return bytes(content.tolist()).decode()


@torch.no_grad()
def loaded(part: Partitioned, file: str) -> Partitioned:
    """A copy of a part with the values that an exported file has. Raises what reading does."""
    part = copy.deepcopy(part, {id(part.peers): part.peers})
    with copies.file_at(file) as path, safetensors.safe_open(path, "pt") as found:
        for name, index in _places(part).items():
            values = found.get_slice(name)[index] if index else found.get_tensor(name)
            _of(part, name).copy_(values)
    return part


def _places(part: Partitioned) -> Mapping[str, Index]:
    pieces, persistent = part.pieces, part.state_dict().keys()
    return {name: pieces.get(name) or () for name in persistent}


def _of(part: Partitioned, name: str) -> Tensor:
    module, _, attribute = name.rpartition(".")
    found: Tensor = getattr(part.get_submodule(module), attribute)
    return found.detach()
