"""A replica whose model is divided: its first process has the whole model, and speaks for all.

The task's loss and measures run in the first process alone, on the whole model. When they call the
model, all partitions compute the output together, each with its part; so do they in backward. All
else in the replica, and every strategy, sees one model and gradient, as if one process found them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import IntEnum
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function

from disttrain.groups.steps import Collective, Leader
from disttrain.parallel.layers.dropout import HashDropout
from disttrain.parallel.layers.partitioned import Index, PartitionedLayer
from disttrain.parallel.partitioned import Partitioned
from disttrain.replica import layer_modes
from disttrain.replica.division import Division
from disttrain.replica.partition_messages import (
    Renewal,
    Tensors,
    packed,
    room_for,
    take_buffers,
    unpack,
)
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""Of a model's input."""


class Act(IntEnum):
    """What partitions do together."""

    FORWARD = 0
    BACKWARD = 1


class Order(NamedTuple):
    """What the first process tells of an act, in the words that all members sum."""

    act: int
    call: int
    """Of the model, since the step began."""
    seed: int = 0
    """Of the step."""
    samples: int = 0
    input_type: int = 0
    """Place in `_TYPES`; minus 1 less that if the input has a gradient."""
    mode: int = 0
    """A sum: 1 for training, 2 with gradients, 4 in bfloat16 by autocast, 8 in float16."""
    renewal: int = 0
    otherwise: int = 0
    """A sum, over layers: 1 for the first one, 2 for the second, of those whose mode is another."""

    @classmethod
    def of(cls, words: Sequence[int]) -> "Order":
        return cls(*words[: len(cls._fields)])


_TRAINS, _HAS_GRADIENTS = 1, 2
_AUTOCASTS = {torch.bfloat16: 4, torch.float16: 8}


class Part:
    """One partition's part of the model, at work. Acts come in the same order in all partitions."""

    def __init__(self, part: Partitioned, device: torch.device) -> None:
        self._part = part
        self._device = device
        self.values = _values(part)
        self.layers = {
            name: each for name, each in part.named_modules() if isinstance(each, PartitionedLayer)
        }
        self._dropouts = [each for each in part.modules() if isinstance(each, HashDropout)]
        self._outputs: dict[int, tuple[Tensor, Tensor]] = {}
        """By call: input and output, until the next step."""

    def forward(self, order: Order, x: Tensor, whole: nn.Module | None = None) -> Tensor:
        """The output, whole in the first partition and empty in others. Raises GroupLost.

        `whole`: the model, in the first partition.
        """
        if not order.call:
            self._outputs.clear()
        for dropout in self._dropouts:
            dropout.seed, dropout.step = order.seed, order.call
        layer_modes.take(self.layers, trains=bool(order.mode & _TRAINS), otherwise=order.otherwise)
        if whole is not None:
            layer_modes.take_inside(self.layers, whole)
        kind = next((each for each, bit in _AUTOCASTS.items() if order.mode & bit), None)
        has_gradients = bool(order.mode & _HAS_GRADIENTS)
        own = x.detach().requires_grad_(order.input_type < 0 and has_gradients)
        with (
            torch.set_grad_enabled(has_gradients),
            torch.autocast(self._device.type, kind, enabled=kind is not None),
        ):
            y = self._part.from_first(own)
        if has_gradients:
            self._outputs[order.call] = own, y
        return y.detach()

    def backward(self, call: int, gradient: Tensor | None = None) -> Tensor | None:
        """Find the gradients of this part; that of its input. Raises GroupLost.

        `gradient`: of the output, in the first partition.
        """
        x, y = self._outputs.pop(call)
        self._part.zero_grad(set_to_none=True)
        if y.requires_grad:
            torch.autograd.backward([y], [torch.zeros_like(y) if gradient is None else gradient])
        return x.grad

    def awaits_backward(self, call: int) -> bool:
        return call in self._outputs

    def nothing(self, order: Order) -> Tensor:
        """The input of a partition other than the first."""
        kind = _TYPES[order.input_type if order.input_type >= 0 else -1 - order.input_type]
        return self._part.no_input(order.samples, kind).to(self._device)

    def check_input(self, x: Tensor) -> None:
        """Raises ValueError for samples of another shape than the model was divided for."""
        wanted, found = self._part.sample, tuple(x.shape[1:])
        if found != wanted:
            message = (
                f"a divided model takes samples of one shape: it was divided for {wanted}, and "
                f"{found} came; give all samples one shape, or set spec.replicas.partitions to 1"
            )
            raise ValueError(message)
        if x.dtype not in _TYPES:
            message = f"a divided model takes floating-point samples, not {x.dtype}; use .float()"
            raise ValueError(message)

    @property
    def gradients(self) -> dict[str, Tensor | None]:
        return {name: each.grad for name, each in self._part.named_parameters()}


class FollowingPartition:
    """A process other than the first. Belongs to the main thread."""

    def __init__(self, division: Division, group: Collective) -> None:
        """Raises ModelError."""
        self._peers = group.peers
        part = division.part(self._peers)
        self._part = Part(part, division.device)
        self._tensors = Tensors(part, self._peers.rank)

    def step(self, words: Sequence[int]) -> None:
        """Take part in what the first process announces. Raises GroupLost."""
        order = Order.of(words)
        if order.act == Act.FORWARD:
            self._renew(order.renewal)
            self._part.forward(order, self._part.nothing(order))
            self._tensors.give_buffers(self._part.values, self._peers)
            return
        self._part.backward(order.call)
        self._peers.exchange({0: self._tensors.message(self._part.gradients)}, {}).wait()

    def _renew(self, renewal: int) -> None:
        into = [self._part.values[name] for name, _ in self._tensors.values(renewal)]
        room = room_for(into)
        if len(room):
            self._peers.exchange({}, {0: room}).wait()
            unpack(room, into)


class DividedModel:
    """The whole model, which calls its partitions. Belongs to the compute thread."""

    def __init__(self, division: Division, leader: Leader) -> None:
        """Raises ModelError."""
        self._trained = self._model = division.model
        self._leader = leader
        self._peers = peers = leader.group.peers
        part = division.part(peers)
        for note in part.notes:
            LOG.warning("a layer is not divided", layer=note)
        self._part = Part(part, division.device)
        self._own = Tensors(part, 0)
        others = range(1, peers.size)
        self._others = {rank: Tensors(division.planned(rank), rank) for rank in others}
        self._step = self._seed = self._calls = 0
        self._renewal = Renewal.BEGIN
        self._given: tuple[_Versions, _Versions] = ((), ())
        """Of parameters and buffers, what partitions have."""

    def computing(self, seed: int) -> AbstractContextManager[None]:
        """Inside, calls of the model are of all partitions. It is a step's loss, with its seed."""
        return self.evaluating(self._trained)(seed)

    def evaluating(self, model: nn.Module) -> Callable[..., AbstractContextManager[None]]:
        """Make such a block for each batch, between which nobody changes the model's values.

        `model`: the trained one, or another one of the same layers.
        """
        self._renewal = max(self._renewal, Renewal.RENEW)
        return partial(self._calling, model)

    @contextmanager
    def _calling(self, model: nn.Module, seed: int | None = None) -> Iterator[None]:
        if model is not self._model:
            self._model, self._renewal = model, Renewal.BEGIN
        self._step, self._calls = self._step + 1, 0
        self._seed = self._step if seed is None else seed
        model.forward = _Forward(model, self._forward)
        try:
            yield
        finally:
            del model.forward

    def _forward(self, x: Tensor) -> Tensor:
        has_gradients = torch.is_grad_enabled()
        self._part.check_input(x)
        kind = _TYPES.index(x.dtype)
        order = Order(
            act=Act.FORWARD,
            call=self._calls,
            seed=self._seed,
            samples=len(x),
            input_type=-1 - kind if x.requires_grad else kind,
            mode=_TRAINS * self._model.training
            + _HAS_GRADIENTS * has_gradients
            + _autocasts(x.device.type),
            renewal=self._due(),
            otherwise=layer_modes.otherwise(self._part.layers, self._model),
        )
        self._calls += 1
        if not has_gradients:
            return self.forward(order, x)
        of_step = (self, self._step, order)
        found: Tensor = _Divided.apply(of_step, x, *self._model.parameters())
        return found

    def _due(self) -> Renewal:
        """What the task's loss has changed since its latest call of the model is given anew."""
        before, model = self._given, self._model
        self._given = _versions(model.parameters()), _versions(model.buffers())
        due, self._renewal = self._renewal, Renewal.KEEP
        if due or before == self._given:
            return due
        return Renewal.BUFFERS if before[0] == self._given[0] else Renewal.RENEW

    def forward(self, order: Order, x: Tensor) -> Tensor:
        """The output, which all partitions find. Raises GroupLost."""
        self._leader.before_step(*order)
        self._share(order.renewal)
        self._give_buffers()
        y = self._part.forward(order, x, self._model)
        self._take_buffers()
        return y

    @torch.no_grad()
    def backward(
        self, step: int, call: int, gradient: Tensor
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """The gradients of a call's input, and of all parameters of the model.

        Raises GroupLost, and RuntimeError where there is nothing left to find them with.
        """
        if step != self._step or not self._part.awaits_backward(call):
            raise _no_more(
                "may go backward once through each output of a divided model, in the step that "
                "made it; call the model again for each backward"
            )
        self._leader.before_step(*Order(act=Act.BACKWARD, call=call))
        of_input = self._part.backward(call, gradient)
        messages = {rank: tensors.room for rank, tensors in self._others.items()}
        self._peers.exchange({}, messages).wait()
        whole = dict(self._model.named_parameters())
        gathered: dict[str, Tensor] = {}
        received = [self._others[rank].read(each) for rank, each in messages.items()]
        for pieces in (self._own.pieces(self._part.gradients), *received):
            for name, place, part in pieces:
                if place is None:
                    gathered[name] = part
                    continue
                if name not in gathered:
                    gathered[name] = torch.zeros_like(whole[name])
                gathered[name][place] = part.to(whole[name].device)
        return of_input, [gathered.get(name) for name in whole]

    @torch.no_grad()
    def _share(self, renewal: int) -> None:
        """Give each partition its part of the values that the model has now."""
        if renewal == Renewal.KEEP:
            return
        whole = _values(self._model)
        messages = {
            rank: packed([_at(whole[name], place) for name, place in tensors.values(renewal)])
            for rank, tensors in self._others.items()
        }
        under_way = self._peers.exchange(
            {to: each for to, each in messages.items() if len(each)}, {}
        )
        for name, place in self._own.values(renewal):
            self._part.values[name].copy_(_at(whole[name], place))
        under_way.wait()

    def _give_buffers(self) -> None:
        """Those of this process may have changed since the step began: its layers can be called."""
        for name, buffer in self._model.named_buffers():
            if name in self._part.values:
                self._part.values[name].data.copy_(buffer)

    def _take_buffers(self) -> None:
        """What the forward pass made of them, as of running means. Raises GroupLost.

        Not so that autograd sees it: what was computed before does not depend on it.
        """
        for name, buffer in self._model.named_buffers():
            if name in self._part.values:
                buffer.data.copy_(self._part.values[name])
        take_buffers(self._others, dict(self._model.named_buffers()), self._peers)


class _Forward:
    """A model's forward() of all partitions. A copy of the model has its own, of one process."""

    def __init__(self, model: nn.Module, forward: Callable[[Tensor], Tensor]) -> None:
        self._model, self._forward = model, forward

    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002  As nn.Sequential's.
        return self._forward(input)

    def __deepcopy__(self, copied: dict[int, Any]) -> Callable[..., Tensor]:
        model = copied[id(self._model)]
        return MethodType(type(model).forward, model)


class _Divided(Function):
    """One call of a divided model, as a function of its input and the whole model's parameters."""

    @staticmethod
    def forward(
        ctx: Any, of_step: tuple[DividedModel, int, Order], x: Tensor, *_: Tensor
    ) -> Tensor:
        ctx.model, ctx.step, order = of_step
        ctx.call = order.call
        made: DividedModel = ctx.model
        return made.forward(order, x)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = outer
        if torch.is_grad_enabled():
            raise _no_more("may take no derivative of a divided model's gradient (create_graph)")
        of_input, gradients = ctx.model.backward(ctx.step, ctx.call, gradient)
        return None, of_input, *gradients


def _no_more(what: str) -> RuntimeError:
    return RuntimeError(f"Task.loss() {what}, or set spec.replicas.partitions to 1")


_Versions = tuple[tuple[int, int], ...]


def _versions(tensors: Iterable[Tensor]) -> _Versions:
    """Which tensors, and how often each was written in place."""
    return tuple((id(each), each._version) for each in tensors)  # noqa: SLF001  It has no other.


def _autocasts(device: str) -> int:
    is_on = torch.is_autocast_enabled(device)
    return _AUTOCASTS[torch.get_autocast_dtype(device)] if is_on else 0


def _values(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _at(whole: Tensor, place: Index | None) -> Tensor:
    return whole if place is None else whole[place]
