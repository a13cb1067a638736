"""A global array of which each partition has a window: Coates et al. 2013, section 4.2."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from disttrain.parallel.communicator import Communicator, Done, Exchange
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
        return self.begin_fetch(needed, padding).wait()

    def begin_fetch(self, needed: Windows, padding: float = 0.0) -> "Arriving":
        """As `fetch`. What is computed until its result is waited for goes on meanwhile."""
        inside = tuple(box.meets(whole(self.height, self.width)) for box in needed)
        plan, rank = Plan(self.windows, inside), self.peers.rank
        if inside[rank].area and not plan.crosses(rank):
            own = _view(self.tensor, inside[rank], self.window)
            return Arriving(padded(own, inside[rank], needed[rank], padding))
        crossing = Crossing(plan, needed[rank], padding, self.peers)
        token = _Begin.apply(self.tensor, crossing)
        return Arriving(token, crossing, crossing.partial)

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

    def begin_fetch(self, needed: Windows, padding: float = 0.0) -> "Arriving":
        return Arriving(self.fetch(needed, padding))


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


Place = tuple[slice, slice]
"""Rows and columns of a window."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A window of which a part is here. It becomes whole in the same memory."""

    tensor: Tensor
    """(samples, channels, rows, columns). It has 0 where something is still to come."""
    here: Place
    """What lies beyond it, and is not to come, is padding."""
    to_come: Sequence[Place]


class Arriving:
    """A window that was asked for."""

    def __init__(
        self,
        tensor: Tensor,
        crossing: "Crossing | None" = None,
        partial: Partial | None = None,
    ) -> None:
        """`tensor`: the window, or if something crosses a token by which autograd knows of it."""
        self._tensor, self._crossing = tensor, crossing
        self.crosses = crossing is not None
        """Whether anything, or its gradient, crosses a border."""
        self.partial = partial
        """The window before it is waited for; None if nothing of it is here, or none overlaps."""

    def wait(self) -> Tensor:
        if self._crossing is None:
            return self._tensor
        found: Tensor = _Finish.apply(self._tensor, self._crossing)
        return found


class _Begin(Function):
    """Gather, which `_Finish` ends. In backward that one begins to scatter, and this one ends it.

    Backward computes between the two what forward made between them: see late.py.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, own: Tensor, crossing: "Crossing") -> Tensor:
        ctx.crossing = crossing  # type: ignore[attr-defined]
        crossing.begin_gather(own)
        return own.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, token: Tensor) -> tuple[Tensor, None]:
        del token
        return ctx.crossing.end(), None  # type: ignore[attr-defined]


class _Finish(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, token: Tensor, crossing: "Crossing") -> Tensor:
        del token
        ctx.crossing = crossing  # type: ignore[attr-defined]
        return crossing.end()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.crossing.begin_scatter(gradient)  # type: ignore[attr-defined]
        return gradient.new_zeros(0), None


class _Assemble(Function):
    """The transpose of fetching."""

    @staticmethod
    def forward(ctx: FunctionCtx, held: Tensor, plan: Plan, peers: Communicator) -> Tensor:
        ctx.plan, ctx.peers = plan, peers  # type: ignore[attr-defined]
        crossing = Crossing(plan, plan.needed[peers.rank], 0.0, peers)
        crossing.begin_scatter(held)
        return crossing.end()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        plan, peers = ctx.plan, ctx.peers  # type: ignore[attr-defined]
        return gather(gradient, plan, peers), None, None


class _Everywhere(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, own: Tensor, plan: Plan, peers: Communicator) -> Tensor:
        ctx.own = plan.owned[peers.rank].within(plan.needed[peers.rank])  # type: ignore[attr-defined]
        return gather(own, plan, peers)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        rows, columns = ctx.own  # type: ignore[attr-defined]
        return gradient[:, :, rows, columns], None, None


def gather(own: Tensor, plan: Plan, peers: Communicator) -> Tensor:
    """From the windows that are owned to the one that is needed here."""
    crossing = Crossing(plan, plan.needed[peers.rank], 0.0, peers)
    crossing.begin_gather(own)
    return crossing.end()


class Crossing:
    """Between the windows that are owned and `wanted`: what is needed here, and padding around it.

    Scattering is the transpose of gathering: what is held of others goes to its owner, who adds it
    up, in the order of ranks, so that the same run has the same bits.
    """

    def __init__(self, plan: Plan, wanted: Box, padding: float, peers: Communicator) -> None:
        self._plan, self._wanted, self._padding, self._peers = plan, wanted, padding, peers
        self._end: Callable[[], Tensor] | None = None
        self.partial: Partial | None = None
        """Of what is gathered, until it has ended."""

    def begin_gather(self, own: Tensor) -> None:
        plan, wanted, rank = self._plan, self._wanted, self._peers.rank
        owned, needed = plan.owned[rank], plan.needed[rank]
        received = dict(plan.received_by(rank))
        under_way, incoming = self._exchange(own, dict(plan.sent_by(rank)), owned, received)
        out = _room(own, wanted)
        _fill_around(out, needed, wanted, self._padding)
        kept = plan.between(rank, rank)
        if kept.area:
            _view(out, kept, wanted).copy_(_view(own, kept, owned))
        if kept.area and self._peers.overlaps:
            to_come = [box.within(wanted) for box in received.values()]
            for rows, columns in to_come:
                out[:, :, rows, columns] = 0.0
            self.partial = Partial(out, kept.within(wanted), to_come)

        def end() -> Tensor:
            under_way.wait()
            for source, box in received.items():
                _view(out, box, wanted).copy_(incoming[source])
            return out

        self._end = end

    def begin_scatter(self, held: Tensor) -> None:
        plan, wanted, rank = self._plan, self._wanted, self._peers.rank
        owned, places = plan.owned[rank], dict(plan.sent_by(rank))
        under_way, incoming = self._exchange(held, dict(plan.received_by(rank)), wanted, places)
        kept = plan.between(rank, rank)
        out = _room(held, owned)
        if kept != owned:
            out.zero_()
        if kept.area:
            _view(out, kept, owned).copy_(_view(held, kept, wanted))

        def end() -> Tensor:
            under_way.wait()
            for source, box in places.items():
                _view(out, box, owned).add_(incoming[source])
            return out

        self._end = end

    def end(self) -> Tensor:
        """What was begun."""
        assert self._end is not None  # noqa: S101
        end, self._end, self.partial = self._end, None, None
        return end()

    def _exchange(
        self, tensor: Tensor, sent: Mapping[int, Box], has: Box, received: Mapping[int, Box]
    ) -> tuple[Exchange, Mapping[int, Tensor]]:
        outgoing = {to: _part(tensor, box, has) for to, box in sent.items()}
        incoming = {source: _room(tensor, box) for source, box in received.items()}
        under_way = self._peers.exchange(outgoing, incoming)
        if not self._peers.overlaps:
            under_way.wait()
        return (under_way if self._peers.overlaps else Done()), incoming


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
