"""What trains step after step, pushes and fetches, and the loop that drives it."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from torch import Tensor

from disttrain.coordinator.protocol.fields import START, Position, Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job.strategy_kind import StrategyKind
from disttrain.parameter_server.client import FetchResult, Versions
from disttrain.replica import gradient_check, task_calls
from disttrain.replica.agreement import Act, Answered, Tell, nobody
from disttrain.replica.connection import Connection
from disttrain.replica.gradient_check import FrozenParameters
from disttrain.replica.ledger import Gradient, Kind
from disttrain.replica.pipeline import Loaded
from disttrain.replica.ranks import SharedBatches
from disttrain.replica.task_calls import LossOfBatch
from disttrain.replica.training import Counters, Evaluate
from disttrain.replica.work import LostLeases, WorkItem
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.task import checks, user_code
from disttrain.task.loss import BatchLoss, LossContext, LossFigures, numbers

_IDLE_SECONDS = 0.02
"""How long the next batch is waited for before the coordinator's commands are looked at again."""


class Stepper(ABC):
    """Each step is `begin_step`, backward into the vector that it gives, `accrue`, `push`, `adopt`.

    Everything here belongs to the compute thread.
    """

    def __init__(
        self, connection: Connection, manifest: StrategyKind, clip_norm: float | None
    ) -> None:
        self._agreement = connection.agreement
        self._model = connection.model
        self._pushes = connection.pushes
        self._fetches = connection.fetches
        self.working_seconds = connection.working_seconds
        self.ledger = connection.ledger
        self._clip_norm = clip_norm
        self._model.push_beside(manifest.pushed)
        self.computes_on = manifest.computes_on
        """The name of the vector that the model has while it trains."""
        self._evaluates = manifest.evaluates
        self._frozen = FrozenParameters(self._model.tensors)
        self._versions: Versions = ()
        self._computed_on: Versions = ()
        self._adopted = 0
        self.position = START
        """After the last step."""
        self.counters = Counters()
        self._latest_not_finite = -1
        """Number of the latest step that was counted as such."""
        self.tell: Tell = nobody
        """Lets other processes of the replica do the same, of which this one is the first."""

    def begin(self, fetched: FetchResult) -> None:
        self._frozen.begin()
        self._compute_with(fetched)

    def divide_among(self, ranks: SharedBatches) -> None:
        """Compute with other processes from now on, each its part of a batch."""
        message = f"{type(self).__name__} has no ranks, which a rule of the manifest says: {ranks}"
        raise AssertionError(message)

    def announce(self, item: WorkItem) -> None:  # noqa: B027 - Most compute alone.
        """This batch is computed next."""

    @property
    def acknowledged(self) -> Position:
        """What every shard has answered so far."""
        return self._answers.position

    @property
    @abstractmethod
    def samples(self) -> int:
        """Those in the parameters that the next step computes with, local steps included."""

    @abstractmethod
    def begin_step(self) -> Tensor:
        """Where the step's gradient goes, all zero."""

    @abstractmethod
    def accrue(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, position: Position
    ) -> float:
        """Take the step's gradient, if it can be used.

        `position` is the replica's after this step's `samples`; a loss that is not known is None.
        Returns the factor that clips the gradient as it lies there now, 0 for one that must not be
        used. Raises TaskError for what cannot be trained as PyTorch would.
        """

    @abstractmethod
    def push(self) -> None:
        """Push what the steps so far have made, if it is time."""

    @abstractmethod
    def adopt(self, gradient: Tensor, scale: float, samples: int) -> None:
        """Compute with newer parameters from now on: those fetched, or a local step's.

        `gradient`, `scale` and `samples` are those of `accrue`. Ends the step.
        """

    def flush(self) -> None:
        """Push what is accrued and wait until every shard has answered everything.

        Raises ModelError if a frozen parameter has changed.
        """
        self.tell(Act.FLUSH)
        self._frozen.check()
        self.ledger.mark(Kind.FLUSHED)
        self._start_pushing()
        self._pushes.wait_answered()
        self._agreement.tell(self._pushes.answered)

    @property
    def was_too_stale(self) -> bool:
        """Whether a push was refused as too old, so that `start_over` is due between two steps."""
        return self._answers.was_too_stale

    def start_over(self) -> Position:
        """Drop what is not answered, and compute with freshly fetched values from now on.

        Where every push is answered: nothing of what came after it counts.
        """
        self.tell(Act.START_OVER)
        self._forget_steps()
        self._pushes.wait_answered()
        self._agreement.tell(self._pushes.answered._replace(was_too_stale=False))
        self._pushes.go_on(self._answers)
        self._computed_on = ()
        self._fetch_again()
        return self.acknowledged

    def measure(self, evaluate: Evaluate) -> None:
        """See `Training`; then compute with freshly fetched values.

        Else the next gradient would be of what was measured, as old as that took.
        """
        evaluate(self.fetch_now)
        self.fetch_again()

    def finish_measuring(self) -> None:  # noqa: B027 - most measure at once.
        """Return when everything that `measure` was called for is measured. Raises Cancelled."""

    def between_steps(self) -> None:  # noqa: B027 - most have nothing to do there.
        """Go on with what is done beside the steps."""

    def fetch_now(self) -> Versions:
        """Give the model what evaluations measure, freshly fetched; its versions.

        Raises ModelError if a frozen parameter has changed.
        """
        self.tell(Act.FETCH_NOW)
        return self._fetch_at_once(Kind.FETCHING_NOW, self._evaluates, is_exact=True)

    def fetch_again(self) -> None:
        """Compute with freshly fetched values from now on, after an evaluation. As `fetch_now`."""
        self.tell(Act.FETCH_AGAIN)
        self._fetch_again()

    def _fetch_again(self) -> None:
        self._fetch_at_once(Kind.FETCHING_AGAIN, self.computes_on)

    def progress(self, lost: LostLeases) -> Progress:
        """What is finished: acknowledged by all shards, or given up; any thread may ask."""
        position, samples, *_ = self._answers
        return Progress(position=position, samples=samples, abandoned=lost.given_up(position))

    def report(self, lost: LostLeases) -> ReplicaReport:
        """What a heartbeat tells the coordinator; any thread may ask."""
        counters, pushes, fetches = self.counters, self._pushes, self._fetches
        return replace(
            counters.report(self.progress(lost)),
            pushes=self._answers.pushes,
            staleness=tuple(pushes.staleness),
            staleness_unknown=pushes.staleness_unknown,
            push_seconds=pushes.waited_seconds,
            fetch_seconds=fetches.waited_seconds,
        )

    @property
    def _answers(self) -> Answered:
        return self._agreement.answers(self._pushes.answered)

    def _forget_steps(self) -> None:  # noqa: B027 - most strategies apply pushes of any age.
        """Of what the steps since the last push have made, nothing is to be pushed."""

    def _fetch_at_once(self, mark: Kind, name: str, *, is_exact: bool = False) -> Versions:
        self._frozen.check()
        self.ledger.mark(mark)
        self._adopt(self._fetches.wait())
        self._fetch(name, is_exact=is_exact)
        self._adopt(self._fetches.wait())
        return self._versions

    def _fetch(
        self,
        name: str,
        after_seconds: float | None = 0.0,
        fragment: Fragment = WHOLE,
        *,
        is_exact: bool = False,
        steps: int = 0,
    ) -> None:
        into = partial(self._model.fetch_into, name, is_exact=is_exact)
        self._fetches.ask(into, self._model.land, after_seconds, fragment, steps=steps)

    @abstractmethod
    def _start_pushing(self) -> None:
        """Push what the steps since the last push have made, if they made anything."""

    @abstractmethod
    def _take_over(self, fetched: FetchResult) -> None:
        """Make the model compute with fetched values."""

    def _compute_with(self, fetched: FetchResult) -> None:
        """The model's parameters are these from now on."""
        self._adopted += 1
        self._versions = fetched.versions

    def _adopt(self, fetched: FetchResult | None) -> bool:
        if fetched is None:
            return False
        self._compute_with(fetched)
        self.ledger.mark(Kind.ADOPTED, self._adopted)
        self._take_over(fetched)
        return True

    def _judge(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, position: Position
    ) -> tuple[float, float | None]:
        known = () if loss is None else loss.scalars
        squared_norm, *values = numbers(gradient_check.squared_norm(gradient), *known)
        figures = None if loss is None else loss.figures(values)
        mean, count = (0.0, None) if figures is None else (figures.mean, figures.count)
        if count is not None:
            checks.check_count(count)
        # The loss is known to the process that has the output.
        said = (squared_norm, mean, count or 0.0, float(count is not None))
        squared_norm, mean, counted, has_count = self._agreement.judge(said, self._pushes.answered)
        count = counted if has_count else None
        scale = gradient_check.check(squared_norm, mean, self._clip_norm)
        found = Gradient(self.counters.steps, samples, mean, squared_norm, is_finite=scale > 0)
        self.ledger.computed(found, position)
        if scale > 0:
            if figures is not None:
                self._note(figures)
            self._computed_on = self._computed_on or self._versions
        else:
            self._count_not_finite(position)
        return scale, count

    def _count_not_finite(self, position: Position) -> None:
        """A step counts once, whatever it spoils beside its own gradient."""
        if self._latest_not_finite != self.counters.steps:
            self.counters.non_finite += 1
        self._latest_not_finite = self.counters.steps
        self.counters.non_finite_lease = position.lease

    def _note(self, figures: LossFigures) -> None:
        if figures.count != 0:
            self.counters.loss_sum += figures.mean
            self.counters.loss_steps += 1
        self.counters.reported.add(figures.reported)


class BatchSource(Protocol):
    """What is trained on: the pipeline, or what `disttrain replay` follows a record with."""

    @property
    def dry(self) -> bool:
        """Everything received was given out, and the coordinator had no more."""
        ...

    def next(self, timeout: float) -> Loaded | None:
        """The next batch, or None after `timeout` seconds without one."""
        ...

    def drop(self) -> None:
        """Give no more."""
        ...


class TrainingLoop:
    """Trains on what the pipeline brings. Belongs to the compute thread."""

    def __init__(
        self,
        stepper: Stepper,
        loss: LossOfBatch,
        batches: BatchSource,
        lost: LostLeases,
        seed: int,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell`: brings the coordinator to know which leases are given up."""
        self._stepper = stepper
        self._loss = loss
        self._batches = batches
        self._lost = lost
        self._seed = seed
        self._tell = tell
        self._leases: list[int] = []
        """Of the batches computed, but those that are known to be answered."""
        self._flushed_at = 0

    def train_until(self, ends: Callable[[], bool]) -> None:
        """Step after step, until `ends()` is true between two of them.

        `ends()` carries out what the coordinator commands: uploads, evaluations, the end.
        """
        stepper, counters = self._stepper, self._stepper.counters
        while not ends():
            stepper.between_steps()
            if stepper.was_too_stale:
                self._give_up()
            loaded = self._next_batch()
            if loaded is None:
                self._flush_if_dry()
                continue
            if self._lost.skips(loaded.item, stepper.position):
                continue
            began = stepper.working_seconds()
            self._log(loaded)
            samples, position = len(loaded.item.indices), loaded.item.position

            stepper.announce(loaded.item)
            stepper.tell(Act.BEGIN_STEP)
            gradient = stepper.begin_step()
            loss = self._compute(loaded)
            stepper.tell(Act.END_STEP, samples, position.lease, position.offset)
            scale = stepper.accrue(gradient, loss, samples, position)
            stepper.push()
            stepper.adopt(gradient, scale, samples)
            counters.compute_seconds += stepper.working_seconds() - began

    def drain(self) -> None:
        """Drop the batches not begun; push everything and wait for the answers."""
        self._batches.drop()
        self._stepper.finish_measuring()
        self._stepper.flush()

    def _compute(self, loaded: Loaded) -> BatchLoss:
        """Loss and gradient; the random numbers depend on the seed and the place in the data."""
        stepper, item = self._stepper, loaded.item
        drawn = task_calls.batch_seed(self._seed, item.epoch, item.portion, item.first)
        task_calls.seed_step(drawn)
        context = LossContext(
            step=stepper.counters.steps, epoch=item.epoch, samples=stepper.samples, seed=drawn
        )
        loss = self._loss(loaded.batch, context)
        with user_code.running("the loss's backward()"):
            loss.mean.backward()  # type: ignore[no-untyped-call]
        return loss

    def _log(self, loaded: Loaded) -> None:
        stepper = self._stepper
        if loaded.item.lease != stepper.position.lease:
            stepper.ledger.lease_begun(loaded.item)
            self._leases = [*self._unanswered(), loaded.item.lease]
        stepper.ledger.step(stepper.counters.steps, loaded.item)

    def _unanswered(self) -> list[int]:
        answered = self._stepper.acknowledged.lease
        return [lease for lease in self._leases if lease >= answered]

    def _give_up(self) -> None:
        """What is too old goes back, and the rest of its leases: any replica may process it.

        The coordinator knows before anything more is pushed. Else a position in a later lease
        would say that these are complete.
        """
        self._lost.give_up(self._unanswered(), self._stepper.start_over())
        self._leases.clear()
        self._tell()

    def _next_batch(self) -> Loaded | None:
        began = time.perf_counter()
        loaded = self._batches.next(_IDLE_SECONDS)
        self._stepper.counters.data_seconds += time.perf_counter() - began
        return loaded

    def _flush_if_dry(self) -> None:
        """A portion is done only when acknowledged, and others may wait for it."""
        steps = self._stepper.counters.steps
        if self._batches.dry and self._flushed_at != steps:
            self._stepper.flush()
            self._flushed_at = steps
