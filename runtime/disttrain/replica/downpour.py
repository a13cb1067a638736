"""Downpour SGD's client: Algorithm 1.1 of DistBelief's appendix."""

import torch
from torch import Tensor

from disttrain.coordinator.protocol.fields import Position
from disttrain.job.length import UNKNOWN, Extent
from disttrain.job.strategies import downpour
from disttrain.parameter_server.client import FetchResult
from disttrain.replica.accrual import Accrual, StepsBetweenFetches
from disttrain.replica.connection import Connection
from disttrain.replica.pace import MeasuredPace, Pace
from disttrain.replica.stepper import Stepper
from disttrain.task.loss import BatchLoss


class Downpour(Stepper):
    """See `Stepper`."""

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
        super().__init__(connection, manifest, rule.clip_norm)
        self._pace = pace or MeasuredPace(replicas, manifest.fetch_every)
        self._waits = False
        """This step ends when the next one's parameters are there."""
        self._push_every, self._fetch_every = manifest.push_every, manifest.fetch_every
        self._waits_for_answers = manifest.max_in_flight == 0
        self._rule = rule
        self._accrual = Accrual(self._model, self._pushes.acquire, manifest.push_every)
        rates = rule.schedule.rates(run)
        self._own_steps = StepsBetweenFetches(
            manifest.rate_of_local_steps, rates, self._model.factors
        )
        self._decay = rule.gradient_decay
        watches = self._decay > 0 or rule.zero_is_a_step
        self._present = self._model.watch_gradients() if watches else None
        # A gradient is clipped before its decay is added, before it is marked for a sum, and before
        # what is pushed beside it is made of it.
        is_marked = rule.zero_is_a_step and manifest.push_every > 1
        self._clips_here = self._decay > 0 or is_marked or bool(rule.pushed)

    @property
    def samples(self) -> int:
        return self._own_steps.samples

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
        """Add the step's gradient to what the next push carries; see `Stepper`."""
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
        self._note_curvature(gradient)
        if self._rule.zero_is_a_step:
            self._model.mark_absent()
        return self._accrual.add(scale, samples, count)

    def _note_curvature(self, gradient: Tensor) -> None:
        """What compensates for delay: of the very parameters that the gradient was computed on."""
        step = self._accrual.step
        for curvature in () if step is None else step.beside.values():
            torch.mul(gradient, gradient, out=curvature.tensor).mul_(self._model.parameters)

    def push(self) -> None:
        if self.counters.steps % self._push_every == 0:
            self._start_pushing()

    def adopt(self, gradient: Tensor, scale: float, samples: int) -> None:
        if not self._adopt_fetched():
            self._own_steps.step(self._model.parameters, gradient, scale, samples)
        if self._fetches_now:
            self._pace.ended(self._fetches.last_seconds)
        self.counters.steps += 1

    @property
    def _fetches_now(self) -> bool:
        return self.counters.steps % self._fetch_every == 0

    def _start_fetching(self) -> None:
        after_seconds = self._pace.fetch_after_seconds()
        if self._agreement.any(after_seconds is None):
            after_seconds = None
        if self._waits_for_answers:
            steps = 0 if self._computed_on else self._push_every
            self._fetch(self.computes_on, steps=steps)
            self._adopt(self._fetches.wait())
        else:
            self._waits = after_seconds is None
            self._fetch(self.computes_on, after_seconds)

    def _forget_steps(self) -> None:
        if (dropped := self._accrual.drop()) is not None:
            self._pushes.give_back(dropped)

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

    def _take_over(self, fetched: FetchResult) -> None:
        self._model.adopt(buffers=fetched.buffers_changed)

    def _compute_with(self, fetched: FetchResult) -> None:
        super()._compute_with(fetched)
        self._own_steps.adopted(fetched.samples)
