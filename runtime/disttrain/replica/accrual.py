"""What becomes of a step's gradient: Algorithm 1.1's accrued gradients, and steps of one's own."""

from collections.abc import Callable, Sequence

from torch import Tensor

from disttrain.coordinator.protocol.fields import Position
from disttrain.job.schedule_kinds import Factor
from disttrain.job.strategies.downpour import Downpour
from disttrain.parameter_server.client import Push, Versions
from disttrain.parameter_server.messages import MOST_PUSHES_TOLD
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import Outgoing
from disttrain.state.factors import Factors, within


def gradient_buffers(downpour: Downpour) -> int:
    """How many gradients a replica has memory for: those on their way, and what it works on.

    When several steps accrue, a step's gradient has to lie beside their sum. Local steps get one
    buffer more for that; without them the step waits as soon as maxInFlight pushes are unanswered.
    """
    if downpour.push_every == 1:
        return downpour.max_in_flight + 1
    has_local_steps = downpour.rate_of_local_steps > 0
    return max(2, downpour.max_in_flight + (2 if has_local_steps else 1))


class Accrual:
    """The gradient of the next push: backward writes into the buffer that is sent.

    Where a push carries several steps, each is checked and clipped by itself. The first step's
    vector becomes the sum that the later ones are added to, so that a push needs two vectors while
    it accrues and one on its way. Where losses have counts, it is the gradient of the loss over all
    steps' batches together, times the steps in which something counted.
    """

    def __init__(self, model: FlatModel, acquire: Callable[[], Outgoing], push_every: int) -> None:
        """`acquire`: a buffer whose push was answered; may wait for one."""
        self._model = model
        self._acquire = acquire
        self._is_alone = push_every == 1
        """Each step is a push, whose clip factor travels in the header: no pass over the vector."""
        self._sequence = 0
        self._step: Outgoing | None = None
        self._sum: Outgoing | None = None
        self._scale = 1.0
        self._samples = 0
        """Behind the next push, and behind those before it that held nothing."""
        self._own_samples = 0
        """Since the last push would have been."""
        self._steps = 0
        self._unit: float | None = None
        """Count of the first step in the sum: the others' are measured by it."""
        self._counted = 0.0
        """Sum of all counts, so measured."""

    def begin_step(self) -> Tensor:
        """Where the step's gradient goes, all zero, with the model's `grad` pointing there.

        Waits for a buffer whose push was answered, if the last step's is on its way or is the sum.
        """
        if self._step is None:
            self._step = self._acquire()
            self._model.collect_gradients_in(self._step.gradient_views)
        return self._step.gradient.tensor.zero_()

    @property
    def step(self) -> Outgoing | None:
        """The buffer that the present step's gradient goes to."""
        return self._step

    def add(self, scale: float, samples: int, count: float | None = None) -> float:
        """Add `scale` times the step's gradient, which is finite, to what the next push carries.

        `count`: of a loss that says how much its batch counts; all of a push's steps say it.
        Returns the factor that clips the step's vector as it lies there now.
        """
        assert self._step is not None  # noqa: S101  begin_step was before
        if self._is_alone:
            self._sum, self._step = self._step, None
            self._samples = self._own_samples = samples
            self._scale = scale
            return scale
        self._add_clipped(self._step, scale, samples, count)
        return 1.0

    def take(self, versions: Versions, position: Position) -> tuple[Outgoing, Push] | None:
        """What to push now, computed on these versions; None if nothing was accrued."""
        told = min(self._samples, MOST_PUSHES_TOLD * self._own_samples)
        self._own_samples = 0
        if self._sum is None:
            return None
        if self._unit is not None and self._counted != self._steps:
            self._sum.gradient.tensor.mul_(self._steps / self._counted)
        self._sequence += 1
        outgoing, push = (
            self._sum,
            Push(
                sequence=self._sequence,
                gradient=self._sum.gradient.buffer,
                rounded_to=self._sum.rounded_to,
                versions=versions,
                scale=self._scale,
                samples=told,
                lease=position.lease,
                lease_offset=position.offset,
                beside={v: flat.buffer for v, flat in self._sum.beside.items()},
                buffers={v: flat.buffer for v, flat in self._sum.buffers.vectors.items()},
            ),
        )
        self._sum, self._steps = None, 0
        self._samples -= told
        return outgoing, push

    def drop(self) -> Outgoing | None:
        """Forget what was accrued; its buffer, which nobody needs now."""
        dropped, self._sum = self._sum, None
        self._samples = self._own_samples = self._steps = 0
        return dropped

    def _add_clipped(self, step: Outgoing, scale: float, samples: int, count: float | None) -> None:
        gradient = step.gradient.tensor
        if scale != 1.0:
            gradient.mul_(scale)
        self._samples += samples
        self._own_samples += samples
        if count == 0:
            return
        self._steps += 1
        if self._sum is None:
            self._sum, self._step = step, None
            self._unit, self._counted = count, 1.0
        else:
            share = 1.0 if count is None or self._unit is None else count / self._unit
            self._sum.gradient.tensor.add_(gradient, alpha=share)
            self._counted += share


class StepsBetweenFetches:
    """Belongs to the compute thread.

    As on a shard, a step's rate is decided by the samples before it: those in the parameters that
    were adopted last, and those of the local steps since. What other replicas do meanwhile is not
    known before the next fetch.
    """

    def __init__(
        self, learning_rate: float, factor: Factor, factors: Sequence[Factors] = ()
    ) -> None:
        """`learning_rate`: the full rate, which the schedule multiplies; 0: no local steps.

        `factors`: of parameters with a rate of their own.
        """
        self._factors = factors
        self._learning_rate = learning_rate
        self._factor = factor
        self.samples = 0
        """In the parameters as they are now, as far as this replica knows."""

    def adopted(self, samples: int) -> None:
        """The model computes with other parameters now, which hold so many samples."""
        self.samples = samples

    def step(self, parameters: Tensor, gradient: Tensor, scale: float, samples: int) -> None:
        """Move the parameters by `scale` times a gradient of so many samples; 0: it is refused."""
        if scale == 0:
            return
        rate = self._learning_rate * self._factor(self.samples)
        if rate > 0:
            self._move(parameters, gradient, -rate * scale)
        self.samples += samples

    def _move(self, parameters: Tensor, gradient: Tensor, alpha: float) -> None:
        if not self._factors:
            parameters.add_(gradient, alpha=alpha)
            return
        for first, end, factor, _ in within(self._factors, 0, len(parameters)):
            parameters[first:end].add_(gradient[first:end], alpha=alpha * factor)
