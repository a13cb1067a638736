"""Downpour SGD's client: Algorithm 1.1 of DistBelief's appendix."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from torch import Tensor

from disttrain.coordinator.protocol.fields import START, Position, Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job.length import UNKNOWN, Extent
from disttrain.job.strategies import downpour
from disttrain.parameter_server.client import FetchResult, Versions
from disttrain.replica import gradient_check, task_calls
from disttrain.replica.accrual import Accrual, LocalSteps
from disttrain.replica.connection import Connection
from disttrain.replica.gradient_check import FrozenParameters
from disttrain.replica.ledger import Gradient, Kind
from disttrain.replica.pace import MeasuredPace, Pace
from disttrain.replica.pipeline import Loaded
from disttrain.replica.task_calls import LossOfBatch
from disttrain.replica.training import Counters
from disttrain.replica.work import LostLeases
from disttrain.task import checks, user_code
from disttrain.task.loss import BatchLoss, LossContext, LossFigures, numbers

_IDLE_SECONDS = 0.02
"""How long the next batch is waited for before the coordinator's commands are looked at again."""


class Downpour:
    """Each step is `begin_step`, backward into the vector that it gives, `accrue`, `push`, `adopt`.

    Everything here belongs to the compute thread.
    """

    def __init__(
        self,
        connection: Connection,
        manifest: downpour.Downpour,
        replicas: int = 1,
        pace: Pace | None = None,
        run: Extent = UNKNOWN,
    ) -> None:
        """`pace`: how far computing runs ahead where the manifest allows it.

        `replicas`: of the job; how long a step may wait depends on it. `run`: how long the job is,
        for its schedule.
        """
        rule = manifest.shard_rule
        self._pace = pace or MeasuredPace(replicas, manifest.fetch_every)
        self._waits = False
        """This step ends when the next one's parameters are there."""
        self._model = connection.model
        self._pushes = connection.pushes
        self._fetches = connection.fetches
        self.ledger = connection.ledger
        self._push_every, self._fetch_every = manifest.push_every, manifest.fetch_every
        self._waits_for_answers = manifest.max_in_flight == 0
        self._rule = rule
        self._accrual = Accrual(self._model, self._pushes.acquire, manifest.push_every)
        rates = rule.schedule.rates(run)
        self._local_steps = LocalSteps(manifest.rate_of_local_steps, rates, self._model.factors)
        self._decay = rule.gradient_decay
        watches = self._decay > 0 or rule.zero_is_a_step
        self._present = self._model.watch_gradients() if watches else None
        # A gradient is clipped before its decay is added, and before it is marked for a sum.
        self._clips_here = self._decay > 0 or (rule.zero_is_a_step and manifest.push_every > 1)
        self._computes_on, self._evaluates = manifest.computes_on, manifest.evaluates
        self._frozen = FrozenParameters(self._model.tensors)
        self._versions: Versions = ()
        self._computed_on: Versions = ()
        self._adopted = 0
        self.position = START
        """After the last step."""
        self.counters = Counters()

    def begin(self, fetched: FetchResult) -> None:
        self._frozen.begin()
        self._compute_with(fetched)

    @property
    def samples(self) -> int:
        """Those in the parameters that the next step computes with, local steps included."""
        return self._local_steps.samples

    def begin_step(self) -> Tensor:
        """Start fetching if it is time; where the step's gradient goes, all zero."""
        self._waits = False
        if self._fetches_now:
            self._start_fetching()
        if self._present is not None:
            self._present.begin_step()
        return self._accrual.begin_step()

    def accrue(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, position: Position
    ) -> float:
        """Add the step's gradient to what the next push carries, if it can be used.

        `position` is the replica's after this step's `samples`; a loss that is not known is None.
        Returns the factor that clips the gradient as it lies there now, 0 for one that must not be
        used. Raises TaskError for what cannot be trained as PyTorch would.
        """
        self._model.gather_gradients([parameter.grad for parameter in self._model.trainable])
        self._frozen.check_after(self.counters.steps + 1)
        scale, count = self._judge(gradient, loss, samples, position)
        if self._fetches_now:
            # Not before the gradient was judged: until then a GPU may still compute it.
            self._pace.computed()
        self.position = position
        if scale == 0:
            return 0.0
        if self._clips_here:
            self._clip(gradient, scale)
            scale = 1.0
        if self._decay > 0:
            self._model.add_decay(gradient, self._decay)
        if self._rule.zero_is_a_step:
            self._model.mark_absent()
        return self._accrual.add(scale, samples, count)

    def push(self) -> None:
        if self.counters.steps % self._push_every == 0:
            self._start_pushing()

    def adopt(self, gradient: Tensor, scale: float, samples: int) -> None:
        """Compute with newer parameters from now on: those fetched, or a local step's.

        `gradient`, `scale` and `samples` are those of `accrue`. Ends the step.
        """
        if not self._adopt_fetched():
            self._local_steps.step(self._model.parameters, gradient, scale, samples)
        if self._fetches_now:
            self._pace.ended(self._fetches.last_seconds)
        self.counters.steps += 1

    def flush(self) -> None:
        """Push what is accrued and wait until every shard has answered everything.

        Raises ModelError if a frozen parameter has changed.
        """
        self._frozen.check()
        self.ledger.mark(Kind.FLUSHED)
        self._start_pushing()
        self._pushes.wait_answered()

    def fetch_now(self) -> Versions:
        """Give the model what evaluations measure, freshly fetched; its versions.

        Raises ModelError if a frozen parameter has changed.
        """
        return self._fetch_at_once(Kind.FETCHING_NOW, self._evaluates, is_exact=True)

    def fetch_again(self) -> None:
        """Compute with freshly fetched values from now on, after an evaluation. As `fetch_now`."""
        self._fetch_at_once(Kind.FETCHING_AGAIN, self._computes_on)

    def progress(self, lost: LostLeases) -> Progress:
        """What is finished: acknowledged by all shards, or given up; any thread may ask."""
        acknowledged = self._pushes.acknowledged
        return Progress(
            position=acknowledged.position,
            samples=acknowledged.samples,
            abandoned=lost.given_up(acknowledged.position),
        )

    def report(self, lost: LostLeases) -> ReplicaReport:
        """What a heartbeat tells the coordinator; any thread may ask."""
        counters, pushes, fetches = self.counters, self._pushes, self._fetches
        waited = pushes.waited_seconds + fetches.waited_seconds
        return replace(
            counters.report(self.progress(lost)),
            pushes=pushes.acknowledged.pushes,
            staleness=tuple(pushes.staleness),
            staleness_unknown=pushes.staleness_unknown,
            compute_seconds=max(0.0, counters.compute_seconds - waited),
            push_seconds=pushes.waited_seconds,
            fetch_seconds=fetches.waited_seconds,
        )

    def _fetch_at_once(self, mark: Kind, name: str, *, is_exact: bool = False) -> Versions:
        self._frozen.check()
        self.ledger.mark(mark)
        self._adopt(self._fetches.wait())
        self._ask(name, is_exact=is_exact)
        self._adopt(self._fetches.wait())
        return self._versions

    def _ask(self, name: str, after_seconds: float | None = 0.0, *, is_exact: bool = False) -> None:
        into = partial(self._model.fetch_into, name, is_exact=is_exact)
        self._fetches.ask(into, self._model.land, after_seconds)

    @property
    def _fetches_now(self) -> bool:
        return self.counters.steps % self._fetch_every == 0

    def _start_fetching(self) -> None:
        after_seconds = self._pace.fetch_after_seconds()
        if self._waits_for_answers:
            self._ask(self._computes_on)
            self._adopt(self._fetches.wait())
        else:
            self._waits = after_seconds is None
            self._ask(self._computes_on, after_seconds)

    def _judge(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, position: Position
    ) -> tuple[float, float | None]:
        known = () if loss is None else loss.scalars
        squared_norm, *values = numbers(gradient_check.squared_norm(gradient), *known)
        figures = None if loss is None else loss.figures(values)
        mean, count = (0.0, None) if figures is None else (figures.mean, figures.count)
        if count is not None:
            checks.check_count(count)
        scale = gradient_check.check(squared_norm, mean, self._rule.clip_norm)
        found = Gradient(self.counters.steps, samples, mean, squared_norm, is_finite=scale > 0)
        self.ledger.computed(found, position)
        if scale > 0:
            if figures is not None:
                self._note(figures)
            self._computed_on = self._computed_on or self._versions
        else:
            self.counters.non_finite += 1
            self.counters.non_finite_lease = position.lease
        return scale, count

    def _note(self, figures: LossFigures) -> None:
        if figures.count != 0:
            self.counters.loss_sum += figures.mean
            self.counters.loss_steps += 1
        self.counters.reported.add(figures.reported)

    def _clip(self, gradient: Tensor, scale: float) -> None:
        """Where it lies. What becomes too small for a number is 0, not the mark of no gradient."""
        if scale != 1.0:
            gradient.mul_(scale).add_(0.0)

    def _start_pushing(self) -> None:
        accrued = self._accrual.take(self._computed_on, self.position)
        if accrued is None:
            self._pushes.passed(self.position)
            return
        self._computed_on = ()
        self._pushes.submit(*accrued)
        if self._waits_for_answers:
            self._pushes.wait_answered()

    def _adopt_fetched(self) -> bool:
        """Whether the next step computes with fetched parameters, which replace a local step."""
        if self._waits_for_answers:
            return (self.counters.steps + 1) % self._fetch_every == 0
        if self._waits:
            self._pushes.wait_answered()
            return self._adopt(self._fetches.wait())
        return self._adopt(self._fetches.take(self._pace.patience_seconds()))

    def _adopt(self, fetched: FetchResult | None) -> bool:
        if fetched is None:
            return False
        self._compute_with(fetched)
        self.ledger.mark(Kind.ADOPTED, self._adopted)
        self._model.adopt(buffers=fetched.buffers_changed)
        return True

    def _compute_with(self, fetched: FetchResult) -> None:
        self._adopted += 1
        self._versions = fetched.versions
        self._local_steps.adopted(fetched.samples)


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
        downpour: Downpour,
        loss: LossOfBatch,
        batches: BatchSource,
        lost: LostLeases,
        seed: int,
    ) -> None:
        self._downpour = downpour
        self._loss = loss
        self._batches = batches
        self._lost = lost
        self._seed = seed
        self._flushed_at = 0

    def train_until(self, ends: Callable[[], bool]) -> None:
        """Step after step, until `ends()` is true between two of them.

        `ends()` carries out what the coordinator commands: uploads, evaluations, the end.
        """
        downpour, counters = self._downpour, self._downpour.counters
        while not ends():
            loaded = self._next_batch()
            if loaded is None:
                self._flush_if_dry()
                continue
            if self._lost.skips(loaded.item, downpour.position):
                continue
            began = time.perf_counter()
            self._log(loaded)
            samples, position = len(loaded.item.indices), loaded.item.position

            gradient = downpour.begin_step()
            loss = self._compute(loaded)
            scale = downpour.accrue(gradient, loss, samples, position)
            downpour.push()
            downpour.adopt(gradient, scale, samples)
            counters.compute_seconds += time.perf_counter() - began

    def drain(self) -> None:
        """Drop the batches not begun; push everything and wait for the answers."""
        self._batches.drop()
        self._downpour.flush()

    def _compute(self, loaded: Loaded) -> BatchLoss:
        """Loss and gradient; the random numbers depend on the seed and the place in the data."""
        downpour, item = self._downpour, loaded.item
        drawn = task_calls.batch_seed(self._seed, item.epoch, item.portion, item.first)
        task_calls.seed_step(drawn)
        context = LossContext(
            step=downpour.counters.steps, epoch=item.epoch, samples=downpour.samples, seed=drawn
        )
        loss = self._loss(loaded.batch, context)
        with user_code.running("the loss's backward()"):
            loss.mean.backward()  # type: ignore[no-untyped-call]
        return loss

    def _log(self, loaded: Loaded) -> None:
        downpour = self._downpour
        if loaded.item.lease != downpour.position.lease:
            downpour.ledger.lease_begun(loaded.item)
        downpour.ledger.step(downpour.counters.steps, loaded.item)

    def _next_batch(self) -> Loaded | None:
        began = time.perf_counter()
        loaded = self._batches.next(_IDLE_SECONDS)
        self._downpour.counters.data_seconds += time.perf_counter() - began
        return loaded

    def _flush_if_dry(self) -> None:
        """A portion is done only when acknowledged, and others may wait for it."""
        steps = self._downpour.counters.steps
        if self._batches.dry and self._flushed_at != steps:
            self._downpour.flush()
            self._flushed_at = steps
