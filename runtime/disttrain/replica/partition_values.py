"""The values of one process's part of the model: what all have, and what a file has."""

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import safetensors
import torch
from torch import Tensor, nn

from disttrain.checkpoint import copies
from disttrain.groups.steps import Collective
from disttrain.parallel.layers.partitioned import Index
from disttrain.parallel.partitioned import Partitioned, PartOfModel
from disttrain.state.layout import ModelLayout, TensorSpec
from disttrain.task.errors import ModelError

P = TypeVar("P", bound=PartOfModel)


def share(part: Partitioned, group: Collective) -> None:
    """Give all partitions the first one's values of what each of them has. Raises GroupLost."""
    broadcast(of_all(part), group)


@torch.no_grad()
def broadcast(tensors: Sequence[Tensor], group: Collective) -> None:
    """Make each process's tensors those of the first one, bit for bit. Raises GroupLost."""
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for each in tensors:
        by_type.setdefault(each.dtype, []).append(each)
    for alike in by_type.values():
        flat = torch.cat([each.detach().reshape(-1) for each in alike])
        group.broadcast(flat)
        parts = torch.split(flat, [each.numel() for each in alike])
        for each, found in zip(alike, parts, strict=True):
            each.copy_(found.view(each.shape))


def of_all(part: Partitioned) -> list[Tensor]:
    """What each partition has all of, and gets from the first one."""
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
def loaded(part: P, file: str) -> P:
    """A copy of a part with the values that an exported file has. Raises what reading does."""
    part = copy.deepcopy(part, {id(part.peers): part.peers})
    with copies.file_at(file) as path, safetensors.safe_open(path, "pt") as found:
        places = _places(part)
        _require_all(part, places.keys() - set(found.keys()), file)
        for name in places.keys() & set(found.keys()):
            index = places[name]
            values = found.get_slice(name)[index] if index else found.get_tensor(name)
            of(part, name).copy_(values)
    return part


def _require_all(part: PartOfModel, missing: Collection[str], file: str) -> None:
    """Frozen parameters may be each replica's own."""
    frozen = {name for name, each in part.named_parameters() if not each.requires_grad}
    lacking = sorted(set(missing) - frozen)
    if lacking:
        message = f"{file} has no tensor '{lacking[0]}', which the model has"
        raise ModelError(message)


class Gathering:
    """Brings tensors of the whole model together in the first partition, one at a time."""

    def __init__(self, layout: ModelLayout) -> None:
        """`layout`: of all partitions."""
        self._parts: dict[str, list[TensorSpec]] = {}
        for spec in layout.tensors:
            self._parts.setdefault(spec.name, []).append(spec)
        self.names = tuple(self._parts)
        """Of tensors, by their numbers."""

    def number(self, name: str) -> int:
        """Of a tensor, by any of its names."""
        return next(
            place
            for place, specs in enumerate(self._parts.values())
            if name in {specs[0].name, *specs[0].aliases}
        )

    def give(self, part: PartOfModel, number: int) -> None:
        """What this partition has of a tensor, to the first one. Raises GroupLost."""
        name = self.names[number]
        for spec in self._parts[name]:
            if spec.vector.partition == part.peers.rank:
                piece = of(part, name).cpu().contiguous().reshape(-1).view(torch.uint8)
                part.peers.exchange({0: piece}, {}).wait()

    def take(self, part: PartOfModel, number: int) -> Tensor:
        """All of it. Raises GroupLost."""
        name = self.names[number]
        specs = self._parts[name]
        whole = torch.empty(specs[0].of_model, dtype=getattr(torch, specs[0].dtype))
        rooms = {
            spec.vector.partition: torch.empty(
                spec.elements * whole.element_size(), dtype=torch.uint8
            )
            for spec in specs
            if spec.vector.partition
        }
        part.peers.exchange({}, rooms).wait()
        for spec in specs:
            given = rooms.get(spec.vector.partition)
            found = of(part, name).cpu() if given is None else given.view(whole.dtype)
            whole[spec.box] = found.view(spec.shape)
        return whole


def _places(part: PartOfModel) -> Mapping[str, Index]:
    pieces, persistent = part.pieces, part.state_dict().keys()
    return {name: pieces.get(name) or () for name in persistent}


def of(part: PartOfModel, name: str) -> Tensor:
    module, _, attribute = name.rpartition(".")
    found: Tensor = getattr(part.get_submodule(module), attribute)
    return found.detach()
