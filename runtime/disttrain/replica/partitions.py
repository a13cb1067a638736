"""A replica whose model is divided: its first process speaks for all, each has a part.

The task's loss and measures run in the first process alone, with a model that has no values. When
they call it, all partitions compute the output together, each with its part, or losses that need no
whole output; so do they in backward, which leaves each with the gradient of its own parameters.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function

from disttrain.groups.steps import Collective, Leader
from disttrain.parallel.layers.dropout import HashDropout
from disttrain.parallel.layers.partitioned import PartitionedLayer
from disttrain.parallel.objective import JointForward, Objective
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.whole_layers import without_values
from disttrain.replica import layer_modes, partition_losses, partition_values
from disttrain.replica.agreement import Act
from disttrain.replica.division import Division
from disttrain.replica.evaluation import Computing
from disttrain.replica.of_several import Alone, ModelOfSeveral
from disttrain.replica.partition_losses import Losses
from disttrain.replica.partition_values import Gathering
from disttrain.state.layout import ModelLayout
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.task.task import Split
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""Of a model's input."""


class Order(NamedTuple):
    """What the first process tells of a call of the model, in the words that all members sum."""

    act: int
    call: int = 0
    """Of the model, since the step began; of other acts, see who carries them out."""
    seed: int = 0
    """Of the step."""
    samples: int = 0
    input_type: int = 0
    """Place in `_TYPES`; minus 1 less that if the input has a gradient."""
    mode: int = 0
    """A sum: 1 for training, 2 with gradients, 4 in bfloat16 by autocast, 8 in float16, 16 with
    the values of a file, 32 where the first process may have other values than the others, 64 for
    a backward that is to find the input's gradient alone."""
    otherwise: int = 0
    """A sum, over layers: 1 for the first one, 2 for the second, of those whose mode is another."""
    losses: int = 0
    """Bytes in which it is said which losses all find; 0: the first one has the whole output."""

    @classmethod
    def of(cls, words: Sequence[int]) -> "Order":
        return cls(*words[: len(cls._fields)])


_TRAINS, _HAS_GRADIENTS = 1, 2
_AUTOCASTS = {torch.bfloat16: 4, torch.float16: 8}
_LOADED, _SHARES, _FOR_INPUT = 16, 32, 64


class Part:
    """One partition's part of the model, at work. Acts come in the same order in all partitions."""

    def __init__(self, part: Partitioned, group: Collective, device: torch.device) -> None:
        self.module = part
        self._group = group
        self._device = device
        self.layers = {
            name: each for name, each in part.named_modules() if isinstance(each, PartitionedLayer)
        }
        self._dropouts = [each for each in part.modules() if isinstance(each, HashDropout)]
        self._outputs: dict[int, tuple[Tensor, Tensor, bool]] = {}
        """By call, until the next step: input, output, and whether that is the same in all."""

    def forward(
        self,
        order: Order,
        x: Tensor,
        face: nn.Module | None = None,
        losses: Losses | None = None,
    ) -> Tensor:
        """The losses, or the output: whole in the first partition and empty in others.

        `face`: the model, in the first partition. Raises GroupLost.
        """
        if not order.call:
            self._outputs.clear()
        if order.mode & _SHARES:
            partition_values.share(self.module, self._group)
        for dropout in self._dropouts:
            dropout.seed, dropout.step = order.seed, order.call
        layer_modes.take(self.layers, trains=bool(order.mode & _TRAINS), otherwise=order.otherwise)
        if face is not None:
            layer_modes.take_inside(self.layers, face)
        kind = next((each for each, bit in _AUTOCASTS.items() if order.mode & bit), None)
        has_gradients = bool(order.mode & _HAS_GRADIENTS)
        own = x.detach().requires_grad_(order.input_type < 0 and has_gradients)
        with (
            torch.set_grad_enabled(has_gradients),
            torch.autocast(self._device.type, kind, enabled=kind is not None),
        ):
            if losses is None:
                y = self.module.from_first(own)
            else:
                given = self.module.input_of_first(own)
                y = losses.objective.losses(self.module, given, losses.labels)
        if has_gradients:
            self._outputs[order.call] = own, y, losses is not None
        return y.detach()

    def backward(self, order: Order, gradient: Tensor | None = None) -> Tensor | None:
        """Add the gradients of this part to those of its parameters; that of the input.

        `gradient`: of the output, in the first partition. Raises GroupLost.
        """
        x, y, is_shared = self._outputs.pop(order.call)
        if not y.requires_grad:
            return x.grad
        wanted = torch.zeros_like(y) if gradient is None else gradient
        if is_shared:
            wanted = wanted.clone()
            self._group.broadcast(wanted)
        own = [*self.module.parameters()] if order.mode & _FOR_INPUT else []
        before = [None if each.grad is None else each.grad.clone() for each in own]
        torch.autograd.backward([y], [wanted])
        for parameter, kept in zip(own, before, strict=True):
            if kept is None:
                parameter.grad = None
            elif parameter.grad is not None:
                # Where a strategy wants it.
                parameter.grad.copy_(kept)
        return x.grad

    def begin_step(self) -> None:
        """Forget the gradients that another partition pushes."""
        if self._group.peers.rank:
            for _, parameter in partition_values.everywhere(self.module):
                parameter.grad = None

    def awaits_backward(self, call: int) -> bool:
        return call in self._outputs

    def nothing(self, order: Order) -> Tensor:
        """The input of a partition other than the first."""
        kind = _TYPES[order.input_type if order.input_type >= 0 else -1 - order.input_type]
        return self.module.no_input(order.samples, kind).to(self._device)

    def check_input(self, x: Tensor) -> None:
        """Raises ValueError for samples of another shape than the model was divided for."""
        wanted, found = self.module.sample, tuple(x.shape[1:])
        if found != wanted:
            message = (
                f"a divided model takes samples of one shape: it was divided for {wanted}, and "
                f"{found} came; give all samples one shape, or set spec.replicas.partitions to 1"
            )
            raise ValueError(message)
        if x.dtype not in _TYPES:
            message = f"a divided model takes floating-point samples, not {x.dtype}; use .float()"
            raise ValueError(message)


class FollowingPartition:
    """A process other than the first, when the model is called. Belongs to the main thread."""

    def __init__(self, division: Division, group: Collective, layout: ModelLayout) -> None:
        """`layout`: of all partitions. Raises ModelError."""
        self._gathering = Gathering(layout)
        self._group, self._device = group, division.device
        self.part = Part(division.part(group.peers), group, division.device)
        self._loaded: Part | None = None

    def step(self, words: Sequence[int]) -> None:
        """Take part in a call, or its backward, or read a file. Raises GroupLost."""
        order = Order.of(words)
        if order.act == Act.GATHER:
            number, is_loaded = words[1:3]
            given = self._loaded if is_loaded and self._loaded else self.part
            self._gathering.give(given.module, number)
            return
        if order.act == Act.LOAD:
            path = partition_values.told("", self._group, order.call)
            module = partition_values.loaded(self.part.module, path)
            self._loaded = Part(module, self._group, self._device)
            return
        part = self._loaded if order.mode & _LOADED and self._loaded else self.part
        if order.act == Act.BACKWARD:
            self.part.backward(order)
            return
        losses = None
        if order.losses:
            losses = partition_losses.told(order.losses, order.samples, self._group, self._device)
        part.forward(order, part.nothing(order), losses=losses)


class DividedModel(ModelOfSeveral):
    """A model without values, which calls its partitions. Belongs to the compute thread."""

    def __init__(self, division: Division, leader: Leader, layout: ModelLayout) -> None:
        """`layout`: of all partitions. Raises ModelError."""
        self._gathering = Gathering(layout)
        self._leader, self._group = leader, leader.group
        self.part = Part(division.part(self._group.peers), self._group, division.device)
        for note in self.part.module.notes:
            LOG.warning("a layer is not divided", layer=note)
        self._device = division.device
        self.model = division.without_values().model
        """What the task is given."""
        for layer in list(self.model.modules())[1:]:
            layer.register_forward_pre_hook(_has_no_values)
        self._loaded: tuple[nn.Module, Part] | None = None
        self._token = torch.zeros((), requires_grad=True)
        self._step = self._seed = self._calls = 0
        self._has_changed = True

    @property
    def trained(self) -> nn.Module:
        return self.part.module

    def announce(self, act: Act, *words: int) -> None:
        self._has_changed = True
        self._leader.before_step(act, *words)

    def end(self, exit_code: int) -> None:
        """Let the others end. See `Leader.end`."""
        self._leader.end(exit_code)

    @contextmanager
    def loaded(self, file: str) -> Iterator[nn.Module]:
        self.announce(Act.LOAD, len(file.encode()))
        partition_values.told(file, self._group)
        module = partition_values.loaded(self.part.module, file)
        model = without_values(self.model)
        self._loaded = model, Part(module, self._group, self._device)
        try:
            yield model
        finally:
            self._loaded = None

    def tensor(self, model: nn.Module, name: str) -> Tensor:
        part, number = self._part_of(model), self._gathering.number(name)
        self.announce(Act.GATHER, number, int(part is not self.part))
        return self._gathering.take(part.module, number)

    def loss(self, alone: Alone, batch: Any, context: LossContext) -> BatchLoss:
        with self.computing(context.seed):
            return alone(batch, context)

    def computing(self, seed: int) -> AbstractContextManager[None]:
        """Inside, calls of the model are of all partitions. It is a step's loss, with its seed."""
        self._has_changed = True
        return self._calling(self.model, seed)

    def evaluating(self, model: nn.Module, split: Split = Split.TEST) -> Computing:
        """Inside such a block calls of the model are of all partitions."""
        del split
        return lambda _: self._calling(model)

    @contextmanager
    def _calling(self, model: nn.Module, seed: int | None = None) -> Iterator[None]:
        self._step, self._calls = self._step + 1, 0
        self._seed = self._step if seed is None else seed
        model.forward = _Forward(model, partial(self._ask, model))
        try:
            yield
        finally:
            del model.forward

    def _part_of(self, model: nn.Module) -> Part:
        if self._loaded is not None and model is self._loaded[0]:
            return self._loaded[1]
        return self.part

    def _ask(self, model: nn.Module, x: Tensor, losses: Losses | None = None) -> Tensor:
        has_gradients, part = torch.is_grad_enabled(), self._part_of(model)
        part.check_input(x)
        if losses is not None:
            losses.objective.check(part.module, len(x), losses.labels)
        kind = _TYPES.index(x.dtype)
        order = Order(
            act=Act.FORWARD,
            call=self._calls,
            seed=self._seed,
            samples=len(x),
            input_type=-1 - kind if x.requires_grad else kind,
            mode=_TRAINS * model.training
            + _HAS_GRADIENTS * has_gradients
            + _autocasts(x.device.type)
            + _LOADED * (part is not self.part)
            + _SHARES * (part is self.part and self._has_changed),
            otherwise=layer_modes.otherwise(part.layers, model),
            losses=0 if losses is None else len(losses.description.encode()),
        )
        self._calls += 1
        if part is self.part:
            self._has_changed = False
        call = Call(order, model, losses)
        if not has_gradients:
            return self.forward(call, x)
        found: Tensor = _Divided.apply(self, self._step, call, x, self._token)
        return found

    def forward(self, call: "Call", x: Tensor) -> Tensor:
        """What all partitions find. Raises GroupLost."""
        self._leader.before_step(*call.order)
        if call.losses is not None:
            call.losses.tell(self._group)
        return self._part_of(call.model).forward(call.order, x, call.model, call.losses)

    def backward(self, step: int, call: int, gradient: Tensor) -> Tensor | None:
        """Add to the gradients of all parameters, where they are wanted; that of a call's input.

        Raises GroupLost, and RuntimeError where there is nothing left to find them with.
        """
        if step != self._step or not self.part.awaits_backward(call):
            raise _no_more(
                "may go backward once through each output of a divided model, in the step that "
                "made it; call the model again for each backward"
            )
        # With torch.autograd.grad() a loss asks for the gradient of an input alone.
        node = torch.autograd.graph.get_gradient_edge(self._token).node
        for_all = torch._C._will_engine_execute_node(node)  # noqa: SLF001  As torch's own hooks do.
        order = Order(act=Act.BACKWARD, call=call, mode=0 if for_all else _FOR_INPUT)
        self._leader.before_step(*order)
        return self.part.backward(order, gradient)


def _has_no_values(layer: nn.Module, _: object) -> None:
    """Some layers compute with what lies on meta, and find anything."""
    message = f"a {type(layer).__name__} of a divided model is called, which is on the meta device"
    raise RuntimeError(message)


class Call(NamedTuple):
    """Of the model, as the first process makes it."""

    order: Order
    model: nn.Module
    losses: Losses | None
    """None: the whole output."""


class _Forward(JointForward):
    """A model's forward() of all partitions. A copy of the model has its own, of one process."""

    def __init__(self, model: nn.Module, ask: Callable[..., Tensor]) -> None:
        self._model, self._ask = model, ask

    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002  As nn.Sequential's.
        return self._ask(input)

    def losses(self, objective: Objective, x: Tensor, labels: Tensor | None = None) -> Tensor:
        return self._ask(x, Losses(objective, labels))

    def __deepcopy__(self, copied: dict[int, Any]) -> Callable[..., Tensor]:
        model = copied[id(self._model)]
        return MethodType(type(model).forward, model)


class _Divided(Function):
    """One call of a divided model, as a function of its input.

    A second one, which has no values, makes it a part of the loss though no parameter is here.
    """

    @staticmethod
    def forward(
        ctx: Any, made: DividedModel, step: int, call: Call, x: Tensor, token: Tensor
    ) -> Tensor:
        del token
        ctx.made, ctx.step, ctx.call = made, step, call.order.call
        return made.forward(call, x)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = outer
        if torch.is_grad_enabled():
            raise _no_more("may take no derivative of a divided model's gradient (create_graph)")
        return None, None, None, ctx.made.backward(ctx.step, ctx.call, gradient), None


def _no_more(what: str) -> RuntimeError:
    return RuntimeError(f"Task.loss() {what}, or set spec.replicas.partitions to 1")


def _autocasts(device: str) -> int:
    is_on = torch.is_autocast_enabled(device)
    return _AUTOCASTS[torch.get_autocast_dtype(device)] if is_on else 0
