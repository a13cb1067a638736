"""A global array of which each partition has a window: Coates et al. 2013, section 4.2."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from disttrain.parallel.communicator import Communicator
from disttrain.parallel.windows import NOTHING, Box, Plan, Windows, on_all, whole


@dataclass(frozen=True, slots=True)
class DistributedArray:
    """(samples, channels, height, width), divided by rows and columns."""

    tensor: Tensor
    """This partition's window: (samples, channels, its rows, its columns)."""
    windows: Windows
    """Of all partitions, without overlaps."""
    height: int
    width: int
    peers: Communicator

    @property
    def window(self) -> Box:
        return self.windows[self.peers.rank]

    @property
    def channels(self) -> int:
        return self.tensor.shape[1]

    def fetch(self, needed: Windows) -> Tensor:
        """What this partition needs: inside of the array, whoever has it. Under autograd.

        In backward the gradients go back to their owners, who add them up.
        """
        inside = tuple(box.meets(whole(self.height, self.width)) for box in needed)
        found: Tensor = _Move.apply(
            self.tensor, Plan(self.windows, inside), self.peers, gather, scatter
        )
        return found

    def everywhere(self) -> Tensor:
        """The whole array in each partition, which all go on with in the same way. Under autograd.

        So a partition's own gradient is the whole one, and nothing is sent in backward.
        """
        everything = on_all(self.peers.size, self.height, self.width)
        found: Tensor = _Everywhere.apply(self.tensor, Plan(self.windows, everything), self.peers)
        return found


@dataclass(frozen=True, slots=True)
class Everywhere:
    """(samples, channels, height, width), of which each partition has all: a model's input.

    Nothing is sent for it. Its gradient in a partition is of what that partition made of it.
    """

    tensor: Tensor
    peers: Communicator

    @property
    def height(self) -> int:
        return self.tensor.shape[2]

    @property
    def width(self) -> int:
        return self.tensor.shape[3]

    def fetch(self, needed: Windows) -> Tensor:
        everything = whole(self.height, self.width)
        rows, columns = needed[self.peers.rank].meets(everything).within(everything)
        return self.tensor[:, :, rows, columns]


def assembled(
    tensor: Tensor, written: Windows, windows: Windows, peers: Communicator
) -> DistributedArray:
    """Of windows that may overlap: what several partitions wrote is added up. Under autograd."""
    height = max(box.rows.end for box in windows)
    width = max(box.columns.end for box in windows)
    found = _Move.apply(tensor, Plan(windows, written), peers, scatter, gather)
    return DistributedArray(found, windows, height, width, peers)


_Way = Callable[[Tensor, Plan, Communicator], Tensor]


class _Move(Function):
    """One of `gather` and `scatter`, whose gradient goes the other way: each is the transpose."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, own: Tensor, plan: Plan, peers: Communicator, there: _Way, back: _Way
    ) -> Tensor:
        ctx.plan, ctx.peers, ctx.back = plan, peers, back  # type: ignore[attr-defined]
        return there(own, plan, peers)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        return ctx.back(gradient, ctx.plan, ctx.peers), None, None, None, None  # type: ignore[attr-defined]


class _Everywhere(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, own: Tensor, plan: Plan, peers: Communicator) -> Tensor:
        ctx.own = plan.owned[peers.rank].within(plan.needed[peers.rank])  # type: ignore[attr-defined]
        return gather(own, plan, peers)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        rows, columns = ctx.own  # type: ignore[attr-defined]
        return gradient[:, :, rows, columns], None, None


def gather(own: Tensor, plan: Plan, peers: Communicator) -> Tensor:
    """From the windows that are owned to the one that is needed here."""
    rank = peers.rank
    owned, needed = plan.owned[rank], plan.needed[rank]
    outgoing = {to: _part(own, box, owned) for to, box in plan.sent_by(rank)}
    out = own.new_empty((*own.shape[:2], needed.rows.length, needed.columns.length))
    places = {source: box.within(needed) for source, box in plan.received_by(rank)}
    incoming = {
        source: torch.empty_like(out[:, :, rows, columns], memory_format=torch.contiguous_format)
        for source, (rows, columns) in places.items()
    }
    under_way = peers.exchange(outgoing, incoming)
    kept = plan.between(rank, rank)
    if kept.area:
        rows, columns = kept.within(needed)
        out[:, :, rows, columns] = _part(own, kept, owned)
    under_way.wait()
    for source, (rows, columns) in places.items():
        out[:, :, rows, columns] = incoming[source]
    return out


def scatter(held: Tensor, plan: Plan, peers: Communicator) -> Tensor:
    """The transpose of `gather`: what is held of others goes to its owner, who adds it up.

    In the order of ranks, so that the same run has the same bits.
    """
    rank = peers.rank
    owned, needed = plan.owned[rank], plan.needed[rank]
    outgoing = {owner: _part(held, box, needed) for owner, box in plan.received_by(rank)}
    out = held.new_zeros((*held.shape[:2], owned.rows.length, owned.columns.length))
    places = dict(plan.sent_by(rank))
    incoming = {
        source: held.new_empty((*held.shape[:2], box.rows.length, box.columns.length))
        for source, box in places.items()
    }
    under_way = peers.exchange(outgoing, incoming)
    kept = plan.between(rank, rank)
    under_way.wait()
    for source in range(peers.size):
        box = kept if source == rank else places.get(source, NOTHING)
        if box.area:
            rows, columns = box.within(owned)
            out[:, :, rows, columns] += (
                _part(held, kept, needed) if source == rank else incoming[source]
            )
    return out


def _part(tensor: Tensor, box: Box, outer: Box) -> Tensor:
    rows, columns = box.within(outer)
    return tensor[:, :, rows, columns].contiguous()
