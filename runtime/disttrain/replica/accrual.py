"""From the gradient of a step to the gradient of a push: the accrued gradients of Algorithm 1.1."""

from typing import NamedTuple, Protocol

from torch import Tensor

from disttrain.replica.flat_model import FlatModel, Outgoing
from disttrain.replica.gradient_check import Verdict


class Accrued(NamedTuple):
    """The sum of the gradients since the last push."""

    outgoing: Outgoing
    samples: int
    scale: float
    """Factor for the sum that the shards apply."""


class Buffers(Protocol):
    """Where gradient buffers come from."""

    def acquire(self) -> Outgoing:
        """A gradient buffer that nobody else uses; may wait for a push's answer."""
        ...


class Accrual(Protocol):
    """Where backward puts a step's gradient, and what becomes of it."""

    def begin_step(self) -> Tensor:
        """Where the step's gradient goes, all zero, with the model's `grad` pointing there."""
        ...

    def accrue(self, verdict: Verdict, samples: int, count: float | None = None) -> float:
        """Add the step's gradient, which is finite, to what the next push carries.

        `count`: of a loss that says how much its batch counts; all of a push's steps say it.
        Returns the factor that clips the step's vector as it lies there now.
        """
        ...

    def take(self) -> Accrued | None:
        """What to push now; None if nothing was accrued."""
        ...


class EveryStep:
    """Every step is a push: backward writes into the buffer that is sent, which costs no copy."""

    def __init__(self, model: FlatModel, pushes: Buffers) -> None:
        self._model = model
        self._pushes = pushes
        self._outgoing: Outgoing | None = None
        self._accrued: Accrued | None = None

    def begin_step(self) -> Tensor:
        """Wait for a buffer whose push was answered."""
        if self._outgoing is None:
            self._outgoing = self._pushes.acquire()
            self._model.collect_gradients_in(self._outgoing.gradient_views)
        return self._outgoing.gradient.tensor.zero_()

    def accrue(self, verdict: Verdict, samples: int, count: float | None = None) -> float:  # noqa: ARG002  It is of the batch alone.
        """The clip factor travels in the header."""
        assert self._outgoing is not None  # noqa: S101  begin_step was before
        self._accrued = Accrued(self._outgoing, samples, verdict.scale)
        return verdict.scale

    def take(self) -> Accrued | None:
        """The gradient of the last step."""
        accrued, self._accrued = self._accrued, None
        if accrued is not None:
            self._outgoing = None
        return accrued


class SeveralSteps:
    """A push carries the sum of several steps, each checked and clipped by itself.

    The first step's vector becomes the sum that the later ones are added to, so that a push needs
    two vectors while it accrues and one on its way. Where losses have counts, it is the gradient of
    the loss over all steps' batches together, times the steps in which something counted.
    """

    def __init__(self, model: FlatModel, pushes: Buffers) -> None:
        self._model = model
        self._pushes = pushes
        self._step: Outgoing | None = None
        self._sum: Outgoing | None = None
        self._samples = 0
        self._steps = 0
        self._unit: float | None = None
        """Count of the first step in the sum: the others' are measured by it."""
        self._counted = 0.0
        """Sum of all counts, so measured."""

    def begin_step(self) -> Tensor:
        """Wait for a buffer whose push was answered, if the last step's became the sum."""
        if self._step is None:
            self._step = self._pushes.acquire()
            self._model.collect_gradients_in(self._step.gradient_views)
        return self._step.gradient.tensor.zero_()

    def accrue(self, verdict: Verdict, samples: int, count: float | None = None) -> float:
        """Clip the step's gradient where it lies, then add it."""
        assert self._step is not None  # noqa: S101  begin_step was before
        gradient = self._step.gradient.tensor
        if verdict.scale != 1.0:
            gradient.mul_(verdict.scale)
        self._samples += samples
        if count == 0:
            return 1.0
        self._steps += 1
        if self._sum is None:
            self._sum, self._step = self._step, None
            self._unit, self._counted = count, 1.0
        else:
            share = 1.0 if count is None or self._unit is None else count / self._unit
            self._sum.gradient.tensor.add_(gradient, alpha=share)
            self._counted += share
        return 1.0

    def take(self) -> Accrued | None:
        """The sum so far."""
        if self._sum is None:
            return None
        if self._unit is not None and self._counted != self._steps:
            self._sum.gradient.tensor.mul_(self._steps / self._counted)
        accrued = Accrued(self._sum, self._samples, 1.0)
        self._sum, self._samples, self._steps = None, 0, 0
        return accrued
