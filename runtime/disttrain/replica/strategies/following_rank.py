"""A rank other than the first: it computes its part of each batch, and takes the same steps."""

import queue
from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from disttrain.coordinator.protocol.fields import Lease
from disttrain.coordinator.protocol.messages import Joined
from disttrain.groups.steps import Collective
from disttrain.job import defaults
from disttrain.job.inner_optimizer import InnerOptimizer
from disttrain.job.length import UNKNOWN, Extent
from disttrain.job.spec import Spec
from disttrain.launch.config import LaunchConfig
from disttrain.replica import gradient_check, task_calls
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.inner_optimizer import OwnSteps
from disttrain.replica.membership import Membership
from disttrain.replica.parts import Part
from disttrain.replica.pipeline import Loaded
from disttrain.replica.prepared import Prepared
from disttrain.replica.ranks import Order, Ranks
from disttrain.replica.task_calls import LossOfBatch
from disttrain.replica.work import Cutting
from disttrain.task import user_code
from disttrain.task.loss import BatchLoss, LossContext

_LOOK_AGAIN_SECONDS = 0.1

Step = Callable[[Sequence[int]], None]
"""What a rank does in a step, by the words of its order."""


def steps(
    config: LaunchConfig, ready: Prepared, membership: Membership, joined: Joined, group: Collective
) -> Step:
    """What this process does in each step of its group, which is formed."""
    spec, strategy = config.job.spec, config.job.spec.strategy.only_local_steps
    ranks = Ranks(group, Part(config.partition, config.processes))
    batches = batches_of(spec, ready, membership, joined, ranks.part)
    losses = PartialLosses(ready.loss(), ranks.part, joined.seed)
    rank = FollowingRank(
        ranks,
        membership.flat_model(joined, ready.trained, outgoing_buffers=0),
        strategy.optimizer,
        defaults.extent(spec, ready.train.count),
    )

    def step(words: Sequence[int]) -> None:
        order = Order.of(words)
        rank.step(order, partial(losses.compute, batches.find(order)))

    return step


def batches_of(
    spec: Spec, ready: Prepared, membership: Membership, joined: Joined, part: Part
) -> "Batches":
    """What a rank reads of the batches that the first one announces: its part of each."""
    indices = ready.train.portions(joined.seed, joined.portion_size)
    cutting = Cutting(batch_size=defaults.samples_per_step(spec), portion_indices=indices)
    leases, cancellation = AnnouncedLeases(), membership.cancellation
    pipeline = ready.pipeline(joined.seed, leases, cutting, cancellation, part=part)
    return Batches(leases, pipeline.next, cancellation.check)


class AnnouncedLeases:
    """The leases of which the first rank has begun. See `work.Source`."""

    def __init__(self) -> None:
        self._leases: queue.SimpleQueue[Lease] = queue.SimpleQueue()
        self.ended = False
        self.dry = False

    def announce(self, lease: Lease) -> None:
        self._leases.put(lease)

    def next_now(self) -> Lease | None:
        return None if self._leases.empty() else self._leases.get()

    def next_within(self, seconds: float) -> Lease | None:
        try:
            return self._leases.get(timeout=seconds)
        except queue.Empty:
            return None


class Batches:
    """The batches that the first rank computes, of those that are read ahead."""

    def __init__(
        self,
        leases: AnnouncedLeases,
        read: Callable[[float], Loaded | None],
        check: Callable[[], None],
    ) -> None:
        self._leases = leases
        self._read = read
        self._check = check
        self._lease = 0

    def find(self, order: Order) -> Loaded:
        """Batches before it are dropped: the first rank has lost their lease.

        Raises TaskError, and what ends this process.
        """
        if order.lease != self._lease:
            self._leases.announce(order.rest())
            self._lease = order.lease
        while True:
            self._check()
            loaded = self._read(_LOOK_AGAIN_SECONDS)
            if loaded is None:
                continue
            if (loaded.item.lease, loaded.item.first) == (order.lease, order.first):
                return loaded


class PartialLosses:
    """Loss and gradient of one part of each batch."""

    def __init__(self, loss: LossOfBatch, part: Part, seed: int) -> None:
        self._loss = loss
        self._part = part
        self._seed = seed
        self._steps = 0

    def compute(self, loaded: Loaded, samples: int) -> tuple[BatchLoss | None, int]:
        """The loss, None where the part has no samples, and the samples of the whole batch.

        `samples`: in the parameters. The random numbers depend on the place in the data.
        """
        item, whole = loaded.item, len(loaded.item.indices)
        first, end = self._part.bounds(whole)
        step, self._steps = self._steps, self._steps + 1
        if first == end:
            return None, whole
        drawn = task_calls.batch_seed(self._seed, item.epoch, item.portion, item.first + first)
        task_calls.seed_step(drawn)
        context = LossContext(step=step, epoch=item.epoch, samples=samples, seed=drawn)
        loss = self._loss(loaded.batch, context)
        with user_code.running("the loss's backward()"):
            loss.mean.backward()  # type: ignore[no-untyped-call]
        return loss, whole


class FollowingRank:
    """Belongs to the main thread."""

    def __init__(
        self, ranks: Ranks, model: FlatModel, optimizer: InnerOptimizer, run: Extent = UNKNOWN
    ) -> None:
        """`run`: how long the job is, for the schedule."""
        self._ranks = ranks
        self._model = model
        self._clip_norm = optimizer.clip_norm
        self._own = OwnSteps(optimizer, model, run)

    def step(self, order: Order, compute: Callable[[int], tuple[BatchLoss | None, int]]) -> None:
        """`compute`: runs backward, as `PartialLosses.compute`. Raises as `Collective.sum`."""
        if order.forgets:
            self._own.forget()
        self._ranks.share(self._model, order.values)
        gradient = self._own.begin()
        loss, whole = compute(order.samples)
        self._own.gather()
        mean, count = self._ranks.average(gradient, loss, whole, self._own.present)
        self._take(gradient, mean, count, order.samples)

    def _take(self, gradient: Tensor, mean: float, count: float, samples: int) -> None:
        """The step that the first rank takes: both judge the same bits."""
        squared_norm = float(gradient_check.squared_norm(gradient))
        scale = gradient_check.check(squared_norm, mean, self._clip_norm)
        if scale > 0:
            self._own.step(scale, count, samples)
