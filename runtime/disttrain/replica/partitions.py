"""A replica whose model is divided: its first process has the whole model, and speaks for all.

Before each step it gives every partition that partition's part of the values. All compute the loss
of the same batch, each with its part, and give their gradients back. So the rest of the replica,
and every strategy, sees one model and its gradient, as if this process had computed it alone.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function

from disttrain.coordinator.protocol.fields import Lease
from disttrain.groups.steps import Leader
from disttrain.parallel.layers.dropout import HashDropout
from disttrain.parallel.layers.partitioned import Index
from disttrain.parallel.partitioning import Partitioned
from disttrain.replica import task_calls
from disttrain.replica.division import Division
from disttrain.replica.partition_messages import Found, Tensors, packed, unpack
from disttrain.replica.pipeline import Loaded
from disttrain.task import checks, user_code
from disttrain.task.loss import BatchLoss, Loss, LossContext
from disttrain.telemetry import logs

LOG = logs.get(__name__)

Apply = Callable[[nn.Module, Any, LossContext], BatchLoss]
"""`TaskCalls.loss`, of a batch that is where the model computes."""


class Order(NamedTuple):
    """What the first process tells of a step, in the words that all members sum."""

    lease: int
    epoch: int
    portion: int
    first: int
    """Place of the batch's first sample in the portion."""
    end: int
    """Of the lease in the portion."""
    batch_size: int
    """Samples of this batch; none of the lease that comes behind it has more."""
    portion_size: int
    step: int
    """This and what follows is what the loss is told; see `LossContext`."""
    loss_epoch: int
    samples: int
    seed: int

    @classmethod
    def of(cls, loaded: Loaded, context: LossContext) -> "Order":
        item = loaded.item
        samples = len(item.indices)
        begin = item.first + samples - item.end_offset
        return cls(
            lease=item.lease,
            epoch=item.epoch,
            portion=item.portion,
            first=item.first,
            end=begin + item.lease_samples,
            batch_size=samples,
            portion_size=item.portion_size,
            step=context.step,
            loss_epoch=context.epoch,
            samples=context.samples,
            seed=context.seed,
        )

    @property
    def context(self) -> LossContext:
        return LossContext(
            step=self.step, epoch=self.loss_epoch, samples=self.samples, seed=self.seed
        )

    def rest(self) -> Lease:
        """What is left of the lease from this batch on."""
        return Lease(
            id=self.lease,
            epoch=self.epoch,
            portion=self.portion,
            first=self.first,
            end=self.end,
        )


class PartOfLoss:
    """Loss and gradient of one partition. Calls come in the same order in all of them."""

    def __init__(self, part: Partitioned, apply: Apply, device: torch.device) -> None:
        self._part = part.train()
        self._apply = apply
        self._place = task_calls.mover(device)
        self._dropouts = [each for each in part.modules() if isinstance(each, HashDropout)]

    def compute(self, batch: Any, context: LossContext) -> Found:
        """Raises TaskError, and GroupLost."""
        for dropout in self._dropouts:
            dropout.seed, dropout.step = context.seed, 0
        self._part.zero_grad(set_to_none=True)
        digest = task_calls.digest(batch)
        loss = self._apply(self._part, self._place(batch), context)
        with user_code.running("the loss's backward()"):
            (loss.mean if loss.sum is None else loss.sum).backward()  # type: ignore[no-untyped-call]
        return Found(loss, {n: each.grad for n, each in self._part.named_parameters()}, digest)


class Partition:
    """A process other than the first, and its way to that. Belongs to the main thread."""

    def __init__(self, part: Partitioned) -> None:
        self._values = _values(part)
        self._peers = part.peers
        self._tensors = Tensors(part, part.peers.rank)
        self._is_first = True

    def receive(self) -> None:
        """Take over this partition's values. Raises GroupLost."""
        into = [self._values[name] for name, _ in self._tensors.values(first=self._is_first)]
        room = torch.empty(sum(each.nbytes for each in into), dtype=torch.uint8)
        self._peers.exchange({}, {0: room}).wait()
        unpack(room, into)
        self._is_first = False

    def give(self, found: Found) -> None:
        """Send what was found to the first process. Raises GroupLost."""
        self._peers.exchange({0: self._tensors.message(found)}, {}).wait()


class DividedLoss:
    """The loss and gradient of a whole model, found together with the other partitions.

    See `LossOfBatch`; what it is called with is a `Loaded`. Belongs to the compute thread.
    """

    def __init__(self, division: Division, leader: Leader, apply: Apply) -> None:
        """Raises ModelError."""
        self._model = division.model
        self._leader = leader
        self._peers = peers = leader.group.peers
        part = division.part(peers)
        for note in part.notes:
            LOG.warning("a layer is not divided", layer=note)
        self._values = _values(part)
        self._own = Tensors(part, 0)
        others = range(1, peers.size)
        self._others = {rank: Tensors(division.planned(rank), rank) for rank in others}
        self._loss = PartOfLoss(part, apply, division.device)
        self._is_first = True

    def __call__(self, loaded: Loaded, context: LossContext) -> BatchLoss:
        """Raises TaskError, and GroupLost."""
        self._leader.before_step(*Order.of(loaded, context))
        self._share()
        found = self._loss.compute(loaded.batch, context)
        gradients = self._gather(found)
        self._take_buffers()
        return self._known(found.loss, gradients)

    @torch.no_grad()
    def _share(self) -> None:
        """Give each partition its part of the values that the model has now."""
        whole, first = _values(self._model), self._is_first
        messages = {
            rank: packed([_at(whole[name], index) for name, index in tensors.values(first=first)])
            for rank, tensors in self._others.items()
        }
        under_way = self._peers.exchange(messages, {})
        for name, index in self._own.values(first=first):
            self._values[name].copy_(_at(whole[name], index))
        under_way.wait()
        self._is_first = False

    @torch.no_grad()
    def _gather(self, found: Found) -> dict[str, Tensor]:
        """The whole gradients of those parameters that have one. Raises LossError."""
        messages = {rank: tensors.room for rank, tensors in self._others.items()}
        self._peers.exchange({}, messages).wait()
        whole = dict(self._model.named_parameters())
        gathered: dict[str, Tensor] = {}
        received = [self._others[rank].read(each, found) for rank, each in messages.items()]
        for pieces in (self._own.pieces(found), *received):
            for name, index, gradient in pieces:
                if index is None:
                    gathered[name] = gradient
                    continue
                if name not in gathered:
                    gathered[name] = torch.zeros_like(whole[name])
                gathered[name][index] = gradient.to(whole[name].device)
        return gathered

    @torch.no_grad()
    def _take_buffers(self) -> None:
        """What the forward pass made of them, as of running means, which all partitions have."""
        for name, buffer in self._model.named_buffers():
            if name in self._values:
                buffer.copy_(self._values[name])

    def _known(self, loss: BatchLoss, gradients: dict[str, Tensor]) -> BatchLoss:
        """The loss, with its gradient in the whole model's parameters."""
        parameters = dict(self._model.named_parameters())
        value = loss.mean if loss.sum is None else loss.sum
        own = [parameters[name] for name in gradients]
        known: Tensor = _Known.apply(value.detach(), list(gradients.values()), *own)
        made = known if loss.count is None else Loss(sum=known, count=loss.count)
        return replace(checks.check_loss(made), reported=loss.reported)


class _Known(Function):
    """A number whose gradient in some parameters is known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *parameters: Tensor) -> Tensor:
        del parameters
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = outer
        return None, None, *(each * factor for each in ctx.gradients)


def _values(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _at(whole: Tensor, index: Index | None) -> Tensor:
    return whole if index is None else whole[index]
