"""What the first process of a divided replica and each of its partitions send to each other.

Both sides know which tensors come, of which shapes: each has planned the same division. A message
is their bytes, one after the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from disttrain.parallel.communicator import Communicator
from disttrain.parallel.layers.partitioned import Index
from disttrain.parallel.partitioned import Partitioned


class Renewal(IntEnum):
    """What of a partition's values becomes the first process's before it computes."""

    KEEP = 0
    RENEW = 1
    """Trained parameters and buffers."""
    BEGIN = 2
    """Frozen parameters as well."""
    BUFFERS = 3
    """Alone."""


Gradients = Mapping[str, Tensor | None]
"""Of a partition's parameters; None: the loss does not depend on it."""


class Piece(NamedTuple):
    """A part of the gradient of one parameter."""

    name: str
    place: Index | None
    """Where it lies in the whole one; None: it is all of it."""
    gradient: Tensor


class Tensors:
    """The parameters and buffers of one partition, and what is sent of them."""

    def __init__(self, part: Partitioned, rank: int) -> None:
        self._pieces = part.pieces
        self._parameters = {name: _like(each) for name, each in part.named_parameters()}
        trained = [name for name, each in part.named_parameters() if each.requires_grad]
        self._trained = trained
        self._buffers = [name for name, _ in part.named_buffers()]
        self.own_buffers = part.own_buffers if rank else []
        """What the first process does not have, and gets back from each forward pass."""
        # Of one that all partitions have, each has the whole gradient: the first one's is taken.
        self._given = [name for name in trained if not rank or self._pieces[name] is not None]

    def values(self, renewal: int) -> Iterator[tuple[str, Index | None]]:
        """What a partition gets before it computes: names, and where its part lies in the whole.

        `renewal`: a `Renewal`.
        """
        parameters = {Renewal.RENEW: self._trained, Renewal.BEGIN: list(self._parameters)}
        for name in parameters.get(Renewal(renewal), ()):
            yield name, self._pieces.get(name)
        for name in self._buffers if renewal else ():
            yield name, None

    def give_buffers(self, values: Mapping[str, Tensor], peers: Communicator) -> None:
        """Send the first process what it does not have of a forward pass. Raises GroupLost."""
        if self.own_buffers:
            message = packed([values[name] for name in self.own_buffers])
            peers.exchange({0: message}, {}).wait()

    def pieces(self, gradients: Gradients) -> Iterator[Piece]:
        """What this partition gives of its gradients."""
        for name in self._given:
            gradient = gradients[name]
            if gradient is not None:
                yield Piece(name, self._pieces.get(name), gradient)

    def message(self, gradients: Gradients) -> Tensor:
        """The same, for the first process."""
        given = {name: gradients[name] for name in self._given}
        has = torch.tensor([each is not None for each in given.values()], dtype=torch.uint8)
        filled = [
            torch.zeros_like(self._parameters[name], device="cpu") if each is None else each
            for name, each in given.items()
        ]
        return packed([has, *filled])

    @property
    def room(self) -> Tensor:
        """For such a message."""
        nbytes = sum(self._parameters[name].nbytes for name in self._given)
        return torch.empty(len(self._given) + nbytes, dtype=torch.uint8)

    def read(self, message: Tensor) -> Iterator[Piece]:
        """What this partition sent."""
        end = len(self._given)
        parts = [torch.empty_like(self._parameters[name], device="cpu") for name in self._given]
        unpack(message[end:], parts)
        for name, is_there, part in zip(self._given, message[:end].tolist(), parts, strict=True):
            if is_there:
                yield Piece(name, self._pieces[name], part)


def take_buffers(
    others: Mapping[int, Tensors], buffers: Mapping[str, Tensor], peers: Communicator
) -> None:
    """Receive what other partitions give of a forward pass. Raises GroupLost."""
    into = {
        rank: [buffers[name].data for name in tensors.own_buffers]
        for rank, tensors in others.items()
        if tensors.own_buffers
    }
    rooms = {rank: room_for(each) for rank, each in into.items()}
    peers.exchange({}, rooms).wait()
    for rank, room in rooms.items():
        unpack(room, into[rank])


def room_for(tensors: Sequence[Tensor]) -> Tensor:
    """For what `packed` makes of such."""
    return torch.empty(sum(each.nbytes for each in tensors), dtype=torch.uint8)


def packed(tensors: Sequence[Tensor]) -> Tensor:
    """Their bytes, one after the other, in host memory."""
    parts = [each.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for each in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


@torch.no_grad()
def unpack(message: Tensor, into: Sequence[Tensor]) -> None:
    """Fill tensors with what `packed` made of such."""
    at = 0
    for each in into:
        # A copy, since a view needs bytes that begin at a multiple of the element's size.
        part = message[at : at + each.nbytes].clone().view(each.dtype)
        each.copy_(part.view(each.shape))
        at += each.nbytes


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="meta")
