"""A replica whose ranks divide the model by FSDP2: each computes its part of every batch.

The model that computes is torch's own fully_shard. It gathers a block's rows while the block
computes, and leaves each rank with the gradient of its rows. Its values come from the rank's pieces
before each forward, and so whatever changes these, as a fetch does, need not know of it. Messages
go by torch's hooks, so that all ranks have to call the model alike, in an evaluation too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from disttrain.errors import Interruption
from disttrain.groups.errors import GroupLost
from disttrain.groups.steps import Collective, Leader
from disttrain.replica import evaluation, partition_values, task_calls
from disttrain.replica.agreement import Act
from disttrain.replica.evaluation import Computing
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.gradient_check import PresentGradients
from disttrain.replica.of_several import Alone, ModelOfSeveral
from disttrain.replica.partition_values import Gathering
from disttrain.replica.parts import Part
from disttrain.replica.pieces import Pieces, Sharding
from disttrain.replica.pipeline import read
from disttrain.replica.ranks import Order, SharedBatches, of_whole, own_figures
from disttrain.replica.task_calls import TaskCalls
from disttrain.replica.work import WorkItem
from disttrain.state.layout import ModelLayout
from disttrain.task.errors import ModelError, TaskError
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.task.task import Split
from disttrain.telemetry import logs
from disttrain.transport import malloc

LOG = logs.get(__name__)

_SPLITS = tuple(Split)
_FAILED_SECONDS = 10.0
"""For all ranks to meet the same mistake in the same batch."""


class ShardedRank:
    """One rank at work: its pieces, and the model that computes. For the compute thread."""

    def __init__(self, sharding: Sharding, group: Collective) -> None:
        """Raises ModelError."""
        self.group = group
        self.pieces = sharding.of_rank(group)
        self.model = _sharded(sharding, group)
        self.part = Part(group.peers.rank, group.peers.size, always_computes=True)
        self.samples = 0
        """Of the whole batch that is computed."""

    @torch.no_grad()
    def take(self, pieces: Pieces) -> None:
        """Compute with these values from now on, and with the first rank's buffers."""
        given = dict(pieces.named_parameters())
        # What is in no block stays gathered after a forward that no backward follows.
        cast("Any", self.model).reshard()
        for name, parameter in self.model.named_parameters():
            parameter.grad = None
            _local(parameter).copy_(given[name])
        for buffer, value in self._buffers(pieces):
            buffer.copy_(value)
        partition_values.broadcast([*self.model.buffers()], self.group)

    def loss(self, alone: Alone, batch: Any, context: LossContext) -> BatchLoss:
        """Of the whole batch; its gradient is that of this part, as the mean of ranks wants it.

        Raises TaskError and GroupLost.
        """
        self.take(self.pieces)
        found = alone(batch, context)
        mean, counted = own_figures(found, self.part, self.samples)
        sums = torch.tensor([mean * counted, counted], dtype=torch.float64)
        self.group.all_reduce(sums)
        total, count = sums.tolist()
        own = found.mean * (counted * self.part.ranks / count if count else 0.0)
        whole = torch.full_like(own, total / count if count else total)
        # With the gradient of the one, and the value of the other.
        return of_whole(found, whole.detach() + (own - own.detach()), count)

    def gradients(self) -> dict[str, Tensor | None]:
        """Of this rank's rows, after backward."""
        named = self.model.named_parameters()
        return {name: each.grad if each.grad is None else _local(each.grad) for name, each in named}

    @contextmanager
    def evaluating(self, pieces: Pieces, *, has_read: bool = True) -> Iterator[None]:
        """A block in which all ranks compute the same batch, with these values.

        `has_read`: that this one has it. What the block raises is raised in all ranks, or else
        GroupLost: a mistake of the task is that of all.
        """
        group = self.group
        if sum(group.sum((int(has_read),))) != self.part.ranks:
            message = "a rank could not read what the first one has read"
            raise GroupLost(message)
        self.take(pieces)
        try:
            yield
        except (GroupLost, Interruption):
            raise
        except Exception:
            _forget_call(self.model)
            # Whoever has not failed waits for this rank within the model.
            group.sum((1,), _FAILED_SECONDS)
            raise
        if sum(group.sum((0,))):
            message = "another rank could not evaluate what this one can"
            raise GroupLost(message)

    @torch.no_grad()
    def keep(self) -> None:
        """What the loss has changed: buffers, and perhaps parameters. After backward."""
        kept = dict(self.pieces.named_parameters())
        for name, parameter in self.model.named_parameters():
            kept[name].copy_(_local(parameter))
        for buffer, own in self._buffers(self.pieces):
            own.copy_(buffer)

    def _buffers(self, pieces: Pieces) -> Iterator[tuple[Tensor, Tensor]]:
        """By each of their names: in the model that computes, tied ones are so no more."""
        own = dict(self.model.named_buffers(remove_duplicate=False))
        for name, buffer in pieces.module.named_buffers(remove_duplicate=False):
            yield own[name], buffer


class ShardedModel(ModelOfSeveral):
    """The first rank's. Belongs to the compute thread."""

    def __init__(self, sharding: Sharding, leader: Leader, layout: ModelLayout) -> None:
        """`layout`: of all ranks. Raises ModelError."""
        self._leader = leader
        self._rank = ShardedRank(sharding, leader.group)
        self._gathering = Gathering(layout)
        self.model, self.batch_part = self._rank.model, self._rank.part
        self._loaded: Pieces | None = None

    @property
    def trained(self) -> nn.Module:
        return self._rank.pieces.module

    def announce(self, act: Act, *words: int) -> None:
        self._leader.before_step(act, *words)

    def loss(self, alone: Alone, batch: Any, context: LossContext) -> BatchLoss:
        return self._rank.loss(alone, batch, context)

    def shared_batches(self, model: FlatModel) -> SharedBatches:
        return ShardedBatches(self._rank, model, self._leader)

    def evaluating(self, model: nn.Module, split: Split) -> Computing:
        """All ranks compute the whole batch, since a layer is gathered where all need it."""
        del model
        return partial(self._evaluating, split)

    @contextmanager
    def _evaluating(self, split: Split, indices: Sequence[int]) -> Iterator[None]:
        number, is_loaded = _SPLITS.index(split), int(self._loaded is not None)
        self.announce(Act.EVALUATE, number, indices[0], len(indices), is_loaded)
        with self._rank.evaluating(self._loaded or self._rank.pieces):
            yield

    @contextmanager
    def loaded(self, file: str) -> Iterator[nn.Module]:
        self.announce(Act.LOAD, len(file.encode()))
        partition_values.told(file, self._rank.group)
        self._loaded = partition_values.loaded(self._rank.pieces, file)
        try:
            yield self.model
        finally:
            self._loaded = None

    def tensor(self, model: nn.Module, name: str) -> Tensor:
        del model
        number = self._gathering.number(name)
        self.announce(Act.GATHER, number, int(self._loaded is not None))
        return self._gathering.take(self._loaded or self._rank.pieces, number)


class FollowingShard:
    """A rank other than the first, when an evaluation is computed. Belongs to the main thread."""

    def __init__(self, sharding: Sharding, group: Collective, layout: ModelLayout) -> None:
        """`layout`: of all ranks. Raises ModelError."""
        self.rank = ShardedRank(sharding, group)
        self._gathering = Gathering(layout)
        self._device = sharding.device
        self._loaded: Pieces | None = None

    def step(self, task: TaskCalls, words: Sequence[int]) -> None:
        """Take part in an evaluation, or in what is read or written. Raises GroupLost."""
        act, *rest = words
        if act == Act.EVALUATE:
            self._evaluate(task, *rest[:4])
        elif act == Act.GATHER:
            number, is_loaded = rest[:2]
            self._gathering.give(self._shown(is_loaded), number)
        else:
            path = partition_values.told("", self.rank.group, rest[0])
            self._loaded = None
            self._loaded = partition_values.loaded(self.rank.pieces, path)

    def _shown(self, is_loaded: int) -> Pieces:
        return self._loaded if is_loaded and self._loaded is not None else self.rank.pieces

    def _evaluate(
        self, task: TaskCalls, split: int, first: int, count: int, is_loaded: int
    ) -> None:
        examples, batch, has_read = task.examples(_SPLITS[split], 1), None, True
        try:
            batch = task.collate(read(examples.dataset, list(range(first, first + count))))
        except TaskError as error:
            LOG.warning("cannot read a batch of an evaluation", reason=error)
            has_read = False
        # What the task raises the first rank tells, which computes the same.
        with (
            suppress(TaskError),
            self.rank.evaluating(self._shown(is_loaded), has_read=has_read),
        ):
            placed = task_calls.mover(self._device)(batch)
            evaluation.measure_batch(task, self.rank.model, placed, count)


class ShardedBatches(SharedBatches):
    """Each rank computes its part, and torch has averaged the gradient of its rows by then."""

    def __init__(self, rank: ShardedRank, model: FlatModel, leader: Leader | None = None) -> None:
        """`leader`: of the first rank."""
        self._rank, self._model, self._leader = rank, model, leader

    def announce(self, item: WorkItem, samples: int) -> None:
        assert self._leader is not None  # noqa: S101  The first rank alone has the leases.
        self._rank.samples = len(item.indices)
        self._leader.before_step(Act.BATCH, *told_of(item, samples))

    def average(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, present: PresentGradients
    ) -> BatchLoss | None:
        del gradient, samples, present
        self._rank.keep()
        found, model = self._rank.gradients(), self._model
        model.gather_gradients([found[spec.name] for spec in model.tensors.specs(model.vector)])
        self._rank.model.zero_grad()
        return loss


def told_of(item: WorkItem, samples: int) -> tuple[int, ...]:
    """The words of `Act.BATCH`."""
    return Order.next(item, samples)[:_BATCH_WORDS]


def batch_of(words: Sequence[int]) -> Order:
    """What they say."""
    return Order.of(words[:_BATCH_WORDS])


_BATCH_WORDS = 6
"""Each rank has its own values, and forgets by itself what its optimizer knows."""


def _local(tensor: Tensor) -> Tensor:
    """This rank's rows of what torch calls a DTensor."""
    found: Tensor = cast("Any", tensor).to_local()
    return found


def _forget_call(model: nn.Module) -> None:
    from disttrain.groups import sharding as torchs  # noqa: PLC0415

    torchs.forget_call(model)


def _sharded(sharding: Sharding, group: Collective) -> nn.Module:
    # A replica whose ranks have the whole model has no use for it.
    from disttrain.groups import sharding as torchs  # noqa: PLC0415

    model = sharding.without_values()
    # Blocks are gathered and dropped all the time.
    malloc.give_back_at_once()
    try:
        torchs.shard(model, cast("Any", group), sharding.device)
    except torchs.CannotShard as error:
        message = f"spec.replicas.inner: fsdp2: {error}; take ddp"
        raise ModelError(message) from error
    return model
