"""A global array of which each partition has a window: Coates et al. 2013, section 4.2."""

from dataclasses import dataclass

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from disttrain.parallel.communicator import Communicator
from disttrain.parallel.windows import Box, Plan, Windows, on_all, whole


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

    def fetch(self, needed: Windows, padding: float = 0.0) -> Tensor:
        """What this partition needs, whoever has it; `padding` beyond the array. Under autograd.

        In backward the gradients go back to their owners, who add them up.
        """
        inside = tuple(box.meets(whole(self.height, self.width)) for box in needed)
        plan, rank = Plan(self.windows, inside), self.peers.rank
        if inside[rank].area and not plan.crosses(rank):
            own = _view(self.tensor, inside[rank], self.window)
            return padded(own, inside[rank], needed[rank], padding)
        found: Tensor = _Fetch.apply(self.tensor, plan, needed[rank], padding, self.peers)
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

    def fetch(self, needed: Windows, padding: float = 0.0) -> Tensor:
        everything, own = whole(self.height, self.width), needed[self.peers.rank]
        inside = own.meets(everything)
        return padded(_view(self.tensor, inside, everything), inside, own, padding)


def assembled(
    tensor: Tensor, written: Windows, windows: Windows, peers: Communicator
) -> DistributedArray:
    """Of windows that may overlap: what several partitions wrote is added up. Under autograd."""
    height = max(box.rows.end for box in windows)
    width = max(box.columns.end for box in windows)
    found = _Assemble.apply(tensor, Plan(windows, written), peers)
    return DistributedArray(found, windows, height, width, peers)


def padded(x: Tensor, has: Box, wanted: Box, value: float) -> Tensor:
    """A tensor of `has`, which lies in `wanted`, with a value around it."""
    above, below = has.rows.first - wanted.rows.first, wanted.rows.end - has.rows.end
    left, right = has.columns.first - wanted.columns.first, wanted.columns.end - has.columns.end
    if not (above or below or left or right):
        return x
    # What lies beyond a window's last row is not needed.
    return functional.pad(x, (left, right, above, below), value=value)


class _Fetch(Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, own: Tensor, plan: Plan, wanted: Box, padding: float, peers: Communicator
    ) -> Tensor:
        ctx.plan, ctx.wanted, ctx.peers = plan, wanted, peers  # type: ignore[attr-defined]
        return gather(own, plan, peers, wanted, padding)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        found = scatter(gradient, ctx.plan, ctx.peers, ctx.wanted)  # type: ignore[attr-defined]
        return found, None, None, None, None


class _Assemble(Function):
    """The transpose of fetching."""

    @staticmethod
    def forward(ctx: FunctionCtx, held: Tensor, plan: Plan, peers: Communicator) -> Tensor:
        ctx.plan, ctx.peers = plan, peers  # type: ignore[attr-defined]
        return scatter(held, plan, peers, plan.needed[peers.rank])

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        plan, peers = ctx.plan, ctx.peers  # type: ignore[attr-defined]
        return gather(gradient, plan, peers, plan.needed[peers.rank]), None, None


class _Everywhere(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, own: Tensor, plan: Plan, peers: Communicator) -> Tensor:
        ctx.own = plan.owned[peers.rank].within(plan.needed[peers.rank])  # type: ignore[attr-defined]
        return gather(own, plan, peers, plan.needed[peers.rank])

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        rows, columns = ctx.own  # type: ignore[attr-defined]
        return gradient[:, :, rows, columns], None, None


def gather(
    own: Tensor, plan: Plan, peers: Communicator, wanted: Box, padding: float = 0.0
) -> Tensor:
    """From the windows that are owned to `wanted`: what is needed here, and padding around it."""
    rank = peers.rank
    owned, needed = plan.owned[rank], plan.needed[rank]
    outgoing = {to: _part(own, box, owned) for to, box in plan.sent_by(rank)}
    received = dict(plan.received_by(rank))
    incoming = {source: _room(own, box) for source, box in received.items()}
    under_way = peers.exchange(outgoing, incoming)
    out = _room(own, wanted)
    _fill_around(out, needed, wanted, padding)
    kept = plan.between(rank, rank)
    if kept.area:
        _view(out, kept, wanted).copy_(_view(own, kept, owned))
    under_way.wait()
    for source, box in received.items():
        _view(out, box, wanted).copy_(incoming[source])
    return out


def scatter(held: Tensor, plan: Plan, peers: Communicator, wanted: Box) -> Tensor:
    """The transpose of `gather`: what is held of others goes to its owner, who adds it up.

    In the order of ranks, so that the same run has the same bits.
    """
    rank = peers.rank
    owned = plan.owned[rank]
    outgoing = {owner: _part(held, box, wanted) for owner, box in plan.received_by(rank)}
    places = dict(plan.sent_by(rank))
    incoming = {source: _room(held, box) for source, box in places.items()}
    under_way = peers.exchange(outgoing, incoming)
    kept = plan.between(rank, rank)
    out = _room(held, owned)
    if kept != owned:
        out.zero_()
    if kept.area:
        _view(out, kept, owned).copy_(_view(held, kept, wanted))
    under_way.wait()
    for source, box in places.items():
        _view(out, box, owned).add_(incoming[source])
    return out


def _room(like: Tensor, box: Box) -> Tensor:
    return like.new_empty((*like.shape[:2], box.rows.length, box.columns.length))


def _fill_around(out: Tensor, inside: Box, outer: Box, value: float) -> None:
    rows, columns = inside.within(outer)
    out[:, :, : rows.start] = value
    out[:, :, rows.stop :] = value
    out[:, :, rows, : columns.start] = value
    out[:, :, rows, columns.stop :] = value


def _part(tensor: Tensor, box: Box, outer: Box) -> Tensor:
    return _view(tensor, box, outer).contiguous()


def _view(tensor: Tensor, box: Box, outer: Box) -> Tensor:
    """The elements of `box` in a tensor of `outer`."""
    if box == outer:
        # Backward of a slice would make another array and copy the gradient into it.
        return tensor
    rows, columns = box.within(outer)
    return tensor[:, :, rows, columns]
