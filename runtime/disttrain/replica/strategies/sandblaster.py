"""A batch method in a replica: the loop, and what it needs of the coordinator and the shards."""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial

from torch import nn

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.job.strategy_kind import StrategyKind
from disttrain.parameter_server.client import Versions
from disttrain.parameter_server.errors import EvaluationOver
from disttrain.replica import task_calls
from disttrain.replica.agreement import Act, Tell, nobody
from disttrain.replica.connection import Connection
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.gradient_check import FrozenParameters
from disttrain.replica.groups import GroupStaging, GroupSum, HeldGroups, outcome
from disttrain.replica.pipeline import Loaded, Pipeline
from disttrain.replica.task_calls import LossOfBatch
from disttrain.replica.training import Counters, Training, TrainingInputs
from disttrain.replica.work import Cutting, WorkSource
from disttrain.sandblaster.operations import TRIAL
from disttrain.task import checks, user_code
from disttrain.task.errors import LossError
from disttrain.task.loss import LossContext, LossFigures, numbers

_IDLE_SECONDS = 0.01
"""How long anything is waited for before the coordinator's commands are looked at again."""


_GRADIENTS_CHANGED = (
    "Task.loss() changes the gradients of the parameters (zero_grad() or backward()), which hold "
    "the sum over a group of portions; use torch.autograd.grad() for derivatives inside the loss"
)


def add_portion(
    model: FlatModel,
    unfinished: GroupSum,
    loaded: Loaded,
    loss: LossOfBatch,
    seed: int,
) -> LossFigures:
    """Add a portion's gradient and loss to its group's; the loss in numbers.

    What is drawn depends on the seed and the portion only: the same in each evaluation. Raises
    LossError if the loss itself changes the gradients: those of the portions before are in them.
    """
    item, samples = loaded.item, len(loaded.item.indices)
    drawn = task_calls.batch_seed(seed, item.epoch, item.portion, item.first)
    task_calls.seed_step(drawn)
    so_far = unfinished.gradient.gradient.tensor
    before = so_far._version  # noqa: SLF001  Torch's count of changes in place; it has no other name.
    value = loss(loaded.batch, LossContext(seed=drawn))
    if so_far._version != before or not model.has_gradients_attached():  # noqa: SLF001  As above.
        raise LossError(_GRADIENTS_CHANGED)
    with user_code.running("the loss's backward()"):
        (value.mean * samples if value.sum is None else value.sum).backward()  # type: ignore[no-untyped-call]
    figures = value.figures(numbers(*value.scalars))
    if figures.count is not None:
        checks.check_count(figures.count)
    unfinished.add(samples, figures)
    return figures


class TrialPoint:
    """At which point a replica's model computes, fetched once per evaluation.

    Belongs to the compute thread.
    """

    def __init__(self, connection: Connection, tell: Tell = nobody) -> None:
        """`tell`: lets other processes of the replica do the same."""
        self._tell, self._agreement = tell, connection.agreement
        self._cancellation = connection.cancellation
        self._fetches = connection.fetches
        self._model = connection.model
        self._evaluation = 0
        """Whose point the model has; 0: none's."""
        self._asked = 0
        self._fetching: Future[None] | None = None
        self.waited_seconds = 0.0

    def is_here(self, evaluation: int, seconds: float) -> bool:
        """Whether the model has this evaluation's point; waits for so long at most.

        Raises EvaluationOver when a shard does not have it any more.
        """
        if self._evaluation == evaluation:
            return True
        if self._fetching is None:
            self.ask(evaluation)
        assert self._fetching is not None  # noqa: S101  It was asked for.
        began = time.perf_counter()
        done = wait([self._fetching], seconds).done
        self.waited_seconds += time.perf_counter() - began
        return bool(done) and self.take() == evaluation

    def ask(self, evaluation: int) -> None:
        """Begin to fetch it."""
        self._tell(Act.ASK_TRIAL, evaluation)
        self._asked = evaluation
        self._fetching = self._fetches.begin(partial(self._fetch, evaluation))

    def fetch_now(self) -> Versions:
        """Leave the point for the shards' present parameters. Raises Cancelled."""
        self._tell(Act.FETCH_NOW)
        # A point on its way arrives before, in the same memory.
        self._fetching = None
        self._evaluation = 0
        self._fetches.ask(self._model.fetch_into, self._model.land)
        fetched = self._fetches.wait()
        assert fetched is not None  # noqa: S101  It was asked for.
        self._model.adopt(buffers=fetched.buffers_changed)
        return fetched.versions

    def _fetch(self, evaluation: int) -> None:
        """In the fetch thread. Raises EvaluationOver."""
        began, into = time.perf_counter(), self._model.trial_into()
        self._fetches.client.fetch_trial(evaluation, self._model.vector.beside(TRIAL), into)
        self._model.land_trial()
        self._fetches.transfers.add(time.perf_counter() - began, into.nbytes)

    def take(self) -> int:
        """Compute at the point that was asked for, once it is here; whose point the model has.

        Raises EvaluationOver if a shard of one of the replica's processes does not have it.
        """
        fetching, self._fetching = self._fetching, None
        if fetching is None:
            return self._evaluation
        self._tell(Act.TAKE_TRIAL)
        error = outcome(fetching, self._cancellation)
        if not self._agreement.all(error is None):
            raise error or EvaluationOver(f"evaluation {self._asked} is over")
        self._model.adopt(buffers=False)
        self._evaluation = self._asked
        return self._evaluation


class BatchLoop:
    """Computes what the pipeline brings. Belongs to the compute thread."""

    def __init__(
        self,
        loss: LossOfBatch,
        pipeline: Pipeline,
        staging: GroupStaging,
        point: TrialPoint,
        held: HeldGroups,
        seed: int,
    ) -> None:
        self._loss = loss
        self._pipeline = pipeline
        self._staging = staging
        self._point = point
        self._held = held
        self._seed = seed
        self._loaded: Loaded | None = None
        """Waits for its evaluation's point, or for memory."""
        self._sum: GroupSum | None = None
        self._drained = False
        self._frozen = FrozenParameters(staging.model.tensors)
        self.counters = Counters()

    def begin(self) -> None:
        self._frozen.begin()

    def train_until(self, ends: Callable[[], bool]) -> None:
        while not ends():
            self._staging.settle()
            self._loaded = self._loaded or self._next()
            if self._loaded is not None and self._is_over(self._loaded):
                self._loaded = None

    def drain(self) -> None:
        """Drop what is not computed; wait until the shards have the rest, and tell it.

        Raises ModelError if a frozen parameter has changed.
        """
        self._frozen.check()
        self._drained = True
        self._pipeline.drop()
        self._loaded = None
        self._abandon()
        self._staging.drain()

    def _is_over(self, loaded: Loaded) -> bool:
        """Whether nothing is left to do with a batch: computed, or of a group that was dropped."""
        group = self._held.get(loaded.item.lease)
        if group is None:
            return True
        try:
            if not self._point.is_here(group.evaluation, _IDLE_SECONDS):
                return False
        except EvaluationOver:
            self._held.drop(group.evaluation)
            return True
        unfinished = self._sum_for(loaded)
        if unfinished is not None:
            self._compute(unfinished, loaded)
        return unfinished is not None

    def _sum_for(self, loaded: Loaded) -> GroupSum | None:
        """Where the batch belongs; None as long as there is no memory for it."""
        number = loaded.item.lease
        if self._sum is not None and self._sum.number == number:
            return self._sum
        self._abandon()
        group = self._held.get(number)
        if group is not None:
            self._sum = self._staging.begin(number, group)
        if self._sum is None:
            self._wait_for_memory()
        return self._sum

    def _compute(self, unfinished: GroupSum, loaded: Loaded) -> None:
        began = time.perf_counter()
        assert loaded.item.portion == unfinished.next_portion  # noqa: S101  read in their order
        self._staging.begin_portion()
        figures = add_portion(self._staging.model, unfinished, loaded, self._loss, self._seed)
        self.counters.steps += 1
        self._frozen.check_after(self.counters.steps)
        self.counters.reported.add(figures.reported)
        if math.isfinite(figures.mean):
            self.counters.loss_sum += figures.mean
            self.counters.loss_steps += 1
        if unfinished.is_complete:
            self._sum = None
            self._staging.send(unfinished)
        self.counters.compute_seconds += time.perf_counter() - began

    def _abandon(self) -> None:
        if self._sum is not None:
            self._staging.abandon(self._sum)
        self._sum = None

    def _wait_for_memory(self) -> None:
        began = time.perf_counter()
        self._staging.wait(_IDLE_SECONDS)
        self.counters.push_seconds += time.perf_counter() - began

    def _next(self) -> Loaded | None:
        began, is_for_data = time.perf_counter(), self._held.to_compute > 0
        if self._drained:
            time.sleep(_IDLE_SECONDS)
        loaded = self._pipeline.next(_IDLE_SECONDS)
        if is_for_data:
            self.counters.data_seconds += time.perf_counter() - began
        return loaded


class BatchTraining(Training):
    """See `training.Training`."""

    of = Sandblaster

    def __init__(self, given: TrainingInputs) -> None:
        spec, prepared, membership, joined = given
        rule = spec.strategy.rule
        assert isinstance(rule, Sandblaster)  # noqa: S101  The registry has asked.
        ask, member = membership.coordinator.request, joined.member
        self._connection = membership.connect(joined, prepared.trained, 0)
        self._tell = prepared.tell
        self._point = TrialPoint(self._connection, prepared.tell)
        samples, size = prepared.train.count, rule.portion_size
        portion_samples = partial(permutation.portion_samples, samples, size)
        held = HeldGroups(member, self.progress, portion_samples)
        self._staging = GroupStaging(self._connection, ask, member, held, prepared.tell)
        indices = prepared.train.portions(joined.seed, size)
        cutting = Cutting(batch_size=size, portion_indices=indices)
        source = WorkSource(ask, held, membership.cancellation)
        pipeline = prepared.pipeline(
            joined.seed, source, cutting, membership.cancellation, beside=True
        )
        loss = prepared.loss()
        self._loop = BatchLoop(loss, pipeline, self._staging, self._point, held, joined.seed)

    @staticmethod
    def check_model(strategy: StrategyKind, model: nn.Module) -> None:
        del strategy
        checks.check_sum_over_samples(model)

    def begin(self, meanwhile: Callable[[], None]) -> None:
        self._tell(Act.ASK_FIRST)
        self._connection.first_fetch(meanwhile, tell=partial(self._tell, Act.BEGIN))
        self._loop.begin()

    def train_until(self, ends: Callable[[], bool]) -> None:
        self._loop.train_until(ends)

    def drain(self) -> None:
        self._loop.drain()

    def fetch_now(self) -> Versions:
        return self._point.fetch_now()

    def progress(self) -> Progress:
        """See `Training`: the coordinator counts groups by their results, and samples by this."""
        return Progress(samples=self._staging.samples)

    def report(self) -> ReplicaReport:
        return replace(
            self._loop.counters.report(self.progress()),
            pushes=self._staging.groups,
            fetch_seconds=self._point.waited_seconds,
        )
