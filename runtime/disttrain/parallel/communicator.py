"""How the partitions of a replica give each other tensors."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx


@dataclass(slots=True)
class Traffic:
    """What this partition has sent since it was made, and waited. Any thread may read it."""

    messages: int = 0
    nbytes: int = 0
    sums: int = 0
    """Collective sums and maxima that it took part in, which are not in the other two."""
    exposed_seconds: float = 0.0
    """In which nothing was computed, since messages were begun or waited for."""
    sum_seconds: float = 0.0
    """The same for sums and maxima."""

    @property
    def waited_seconds(self) -> float:
        return self.exposed_seconds + self.sum_seconds


class Exchange(ABC):
    """Messages under way."""

    @abstractmethod
    def wait(self) -> None:
        """Return when everything incoming is there and everything outgoing may be changed."""


class Communicator(ABC):
    """One partition's way to the others. Calls belong to one thread, in the same order in all."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.traffic = Traffic()
        self.overlaps = True
        """Whether there is computing while messages are under way."""

    def exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Exchange:
        """Begin to send one tensor to each rank, and to fill one from each.

        Both sides know shapes and types. Tensors are contiguous, and nobody sends to itself.
        """
        if not outgoing and not incoming:
            return Done()
        self.traffic.messages += len(outgoing)
        self.traffic.nbytes += sum(each.numel() * each.element_size() for each in outgoing.values())
        began = time.perf_counter()
        under_way = self._exchange(outgoing, incoming)
        self.traffic.exposed_seconds += time.perf_counter() - began
        return _Timed(under_way, self.traffic)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all partitions, with the same bits in each."""
        return self._timed_reduce(tensor, is_sum=True)

    def maximum(self, tensor: Tensor) -> Tensor:
        return self._timed_reduce(tensor, is_sum=False)

    def _timed_reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        began = time.perf_counter()
        found = self._reduce(tensor, is_sum=is_sum)
        self.traffic.sums += 1
        self.traffic.sum_seconds += time.perf_counter() - began
        return found

    @abstractmethod
    def _exchange(
        self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]
    ) -> Exchange: ...

    @abstractmethod
    def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        """A new tensor."""


class Alone(Communicator):
    """Of a model that is not divided."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def _exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Exchange:
        assert not outgoing  # noqa: S101  There is nobody else.
        assert not incoming  # noqa: S101
        return Done()

    def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        del is_sum
        return tensor.clone()


class Done(Exchange):
    """Nothing was under way."""

    def wait(self) -> None:
        pass


class _Timed(Exchange):
    def __init__(self, under_way: Exchange, traffic: Traffic) -> None:
        self._under_way, self._traffic = under_way, traffic

    def wait(self) -> None:
        began = time.perf_counter()
        self._under_way.wait()
        self._traffic.exposed_seconds += time.perf_counter() - began


class _Sum(Function):
    """Each partition goes on with the sum in its own way: the gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, peers: Communicator) -> Tensor:
        ctx.peers = peers  # type: ignore[attr-defined]
        return peers.sum(x)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.peers.sum(gradient.contiguous()), None  # type: ignore[attr-defined]


class _SumOfOne(Function):
    """All partitions go on with the sum in the same way: each one's gradient is the whole one."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, peers: Communicator) -> Tensor:
        del ctx
        return peers.sum(x)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        del ctx
        return gradient, None


class _Tied(Function):
    """Parameters that all partitions have.

    Backward comes by here when it has the gradients of all of them, so that one sum is enough.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, peers: Communicator, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.peers = peers  # type: ignore[attr-defined]
        return tuple(each.view_as(each) for each in parameters)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        found: dict[int, Tensor] = {}
        for dtype in dict.fromkeys(each.dtype for each in gradients):
            places = [place for place, each in enumerate(gradients) if each.dtype == dtype]
            own = [gradients[place] for place in places]
            total = ctx.peers.sum(torch.cat([each.reshape(-1) for each in own]))  # type: ignore[attr-defined]
            parts = total.split([each.numel() for each in own])
            for place, each, part in zip(places, own, parts, strict=True):
                found[place] = part.view(each.shape)
        return None, *(found[place] for place in range(len(gradients)))


def summed(x: Tensor, peers: Communicator) -> Tensor:
    """The sum over all partitions, each of which uses it for something else. Under autograd."""
    found: Tensor = _Sum.apply(x, peers)
    return found


def summed_for_all(x: Tensor, peers: Communicator) -> Tensor:
    """The sum over all partitions, of which all compute the same, as a loss. Under autograd."""
    found: Tensor = _SumOfOne.apply(x, peers)
    return found


def tied(parameters: Sequence[Tensor], peers: Communicator) -> Sequence[Tensor]:
    """The parameters, whose gradients will be the sums of what all partitions find."""
    found: tuple[Tensor, ...] = _Tied.apply(peers, *parameters) if parameters else ()
    return found
