"""Downpour SGD's client: Algorithm 1.1 of DistBelief's appendix, around somebody's gradient."""

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from disttrain.coordinator.protocol.fields import START, Position
from disttrain.job import defaults
from disttrain.job.spec import Spec
from disttrain.parameter_server import schedule
from disttrain.parameter_server.client import FetchResult
from disttrain.parameter_server.schedule import Factor
from disttrain.replica import device, gradient_check
from disttrain.replica.accrual import Accrual, EveryStep, SeveralSteps
from disttrain.replica.exchange import Versions
from disttrain.replica.frozen_parameters import FrozenParameters
from disttrain.replica.gradient_check import Verdict
from disttrain.replica.joined import JoinedModel
from disttrain.replica.ledger import Gradient, Kind
from disttrain.replica.local_steps import LocalSteps
from disttrain.replica.pace import MeasuredPace, Pace
from disttrain.replica.push_thread import Departure
from disttrain.replica.reported import Reported
from disttrain.task import checks
from disttrain.task.loss import BatchLoss, LossFigures


@dataclass(frozen=True, kw_only=True, slots=True)
class DownpourConfig:
    """How a replica works with the parameter server."""

    push_every: int = 1
    fetch_every: int = 1
    waits_for_answers: bool = False
    """maxInFlight is 0: wait for each push's answer and for the fetch that follows."""
    replicas: int = 1
    """Of the job; how long a step may wait depends on it."""
    local_learning_rate: float = 0.0
    """Of the steps between fetches, before the schedule; 0: there are none."""
    factor: Factor = schedule.constant
    """The schedule of every rate."""
    clip_norm: float | None = None
    weight_decay: float = 0.0
    """Times the parameters that a step computes with, is part of its gradient after clipping: in
    local steps, and once for each step of a push, as torch.optim has it."""
    keeps_velocity: bool = False
    """Whether the shards go on moving a parameter in a step without a gradient of it."""


def from_spec(spec: Spec) -> DownpourConfig:
    """What the manifest says."""
    downpour = spec.strategy.only_downpour
    return DownpourConfig(
        push_every=downpour.push_every,
        fetch_every=downpour.fetch_every,
        waits_for_answers=downpour.max_in_flight == 0,
        replicas=spec.replicas.count,
        local_learning_rate=defaults.local_learning_rate(downpour),
        factor=schedule.factor(downpour.optimizer.rule.schedule.rule),
        clip_norm=downpour.optimizer.rule.clip_norm,
        weight_decay=downpour.optimizer.rule.weight_decay,
        keeps_velocity=downpour.optimizer.rule.has_velocity,
    )


def gradient_buffers(spec: Spec) -> int:
    """How many gradients a replica has memory for: those on their way, and what it works on.

    When several steps accrue, a step's gradient has to lie beside their sum. Local steps get one
    buffer more for that; without them the step waits as soon as maxInFlight pushes are unanswered.
    """
    downpour = spec.strategy.only_downpour
    if downpour.push_every == 1:
        return downpour.max_in_flight + 1
    has_local_steps = defaults.local_learning_rate(downpour) > 0
    return max(2, downpour.max_in_flight + (2 if has_local_steps else 1))


@dataclass(slots=True)
class Counters:
    """What was done since the process started; written by the compute thread only."""

    steps: int = 0
    loss_sum: float = 0.0
    loss_steps: int = 0
    non_finite: int = 0
    non_finite_lease: int = 0
    step_seconds: float = 0.0
    data_seconds: float = 0.0
    reported: Reported = field(default_factory=Reported)

    def note(self, figures: LossFigures) -> None:
        """Add what a step's loss came to, if anything counted."""
        if figures.count != 0:
            self.loss_sum += figures.mean
            self.loss_steps += 1
        self.reported.add(figures.reported)


class Stepped(NamedTuple):
    """A step between its push and its end."""

    gradient: Tensor
    scale: float
    """Factor that clips the gradient; 0 for one that must not be used."""
    samples: int


class Downpour:
    """Each step is `begin_step`, backward into the vector that it gives, `finish_step`.

    Everything here belongs to the compute thread.
    """

    def __init__(
        self, connection: JoinedModel, config: DownpourConfig, pace: Pace | None = None
    ) -> None:
        """`pace`: how far computing runs ahead where the manifest allows it."""
        self._pace = pace or MeasuredPace(config.replicas, config.fetch_every)
        self._waits = False
        """This step ends when the next one's parameters are there."""
        self._model = connection.model
        self._pushes = connection.pushes
        self._fetches = connection.fetches
        self.ledger = connection.ledger
        self._config = config
        self._accrual: Accrual = (
            EveryStep(self._model, self._pushes)
            if config.push_every == 1
            else SeveralSteps(self._model, self._pushes)
        )
        self._local_steps = LocalSteps(config.local_learning_rate, config.factor)
        watches = config.weight_decay > 0 or config.keeps_velocity
        self._present = self._model.watch_gradients() if watches else None
        self._frozen = FrozenParameters(self._model.tensors)
        self._versions: Versions = ()
        self._computed_on: Versions = ()
        self._adopted = 0
        self.position = START
        """After the last step."""
        self.counters = Counters()

    def begin(self, fetched: FetchResult) -> None:
        """Say which values the model has, before the first step."""
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

    def finish_step(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, position: Position
    ) -> None:
        """Accrue the gradient, push if it is time, and compute with newer parameters from now on.

        `position` is the replica's after this step's `samples`; a loss that is not known is None.
        """
        self.end_step(self.push_step(gradient, loss, samples, position))

    def push_step(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, position: Position
    ) -> Stepped:
        """The first half of `finish_step`: accrue the gradient, and push if it is time.

        Raises TaskError for what cannot be trained as PyTorch would.
        """
        self._model.gather_gradients([parameter.grad for parameter in self._model.trainable])
        self._frozen.check_after(self.counters.steps + 1)
        if self._present is not None and self._config.keeps_velocity:
            self._present.check_velocity()
        verdict, count = self._judge(gradient, loss, samples, position)
        if self._fetches_now:
            # Not before the gradient was judged: until then a GPU may still compute it.
            self._pace.computed()
        if verdict.finite and self._config.weight_decay > 0:
            verdict = self._decayed(gradient, verdict)
        scale = self._accrual.accrue(verdict, samples, count) if verdict.finite else 0.0
        self.position = position

        if self.counters.steps % self._config.push_every == 0:
            self._start_pushing()
        return Stepped(gradient, scale, samples)

    def end_step(self, stepped: Stepped) -> None:
        """The second half: compute with newer parameters from now on."""
        if not self._adopt_fetched():
            self._local_steps.step(self._model.parameters, *stepped)
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
        """Compute with freshly fetched parameters from now on; their versions.

        Raises ModelError if a frozen parameter has changed.
        """
        self._frozen.check()
        self.ledger.mark(Kind.FETCHING_NOW)
        self._adopt(self._fetches.wait())
        self._fetches.ask(self._model.fetch_into, self._model.land)
        self._adopt(self._fetches.wait())
        return self._versions

    @property
    def _fetches_now(self) -> bool:
        return self.counters.steps % self._config.fetch_every == 0

    def _start_fetching(self) -> None:
        after_seconds = self._pace.fetch_after_seconds()
        if self._config.waits_for_answers:
            self._fetches.ask(self._model.fetch_into, self._model.land)
            self._adopt(self._fetches.wait())
        else:
            self._waits = after_seconds is None
            self._fetches.ask(self._model.fetch_into, self._model.land, after_seconds)

    def _judge(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, position: Position
    ) -> tuple[Verdict, float | None]:
        """What the check says, and the count of a loss that has one."""
        known = () if loss is None else loss.scalars
        squared_norm, *values = device.numbers(gradient_check.squared_norm(gradient), *known)
        figures = None if loss is None else loss.figures(values)
        mean, count = (0.0, None) if figures is None else (figures.mean, figures.count)
        if count is not None:
            checks.check_count(count)
        verdict = gradient_check.check(squared_norm, mean, self._config.clip_norm)
        found = Gradient(self.counters.steps, samples, mean, squared_norm, verdict.finite)
        self.ledger.computed(found, position)
        if verdict.finite:
            if figures is not None:
                self.counters.note(figures)
            self._computed_on = self._computed_on or self._versions
        else:
            self.counters.non_finite += 1
            self.counters.non_finite_lease = position.lease
        return verdict, count

    def _decayed(self, gradient: Tensor, verdict: Verdict) -> Verdict:
        """Clip the gradient where it lies, for its decay is not clipped."""
        if verdict.scale != 1.0:
            gradient.mul_(verdict.scale)
        self._model.add_decay(gradient, self._config.weight_decay)
        return Verdict(1.0)

    def _start_pushing(self) -> None:
        accrued = self._accrual.take()
        if accrued is None:
            self._pushes.submit(Departure(outgoing=None, position=self.position))
            return
        departure = Departure(
            outgoing=accrued.outgoing,
            position=self.position,
            samples=accrued.samples,
            scale=accrued.scale,
            versions=self._computed_on,
        )
        self._computed_on = ()
        self._pushes.submit(departure)
        if self._config.waits_for_answers:
            self._pushes.wait_answered()

    def _adopt_fetched(self) -> bool:
        """Whether the next step computes with fetched parameters, which replace a local step."""
        if self._config.waits_for_answers:
            return (self.counters.steps + 1) % self._config.fetch_every == 0
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
