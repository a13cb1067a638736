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

    def accrue(self, verdict: Verdict, samples: int) -> float:
        """Add the step's gradient, which is finite, to what the next push carries.

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

    def accrue(self, verdict: Verdict, samples: int) -> float:
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
    two vectors while it accrues and one on its way.
    """

    def __init__(self, model: FlatModel, pushes: Buffers) -> None:
        self._model = model
        self._pushes = pushes
        self._step: Outgoing | None = None
        self._sum: Outgoing | None = None
        self._samples = 0

    def begin_step(self) -> Tensor:
        """Wait for a buffer whose push was answered, if the last step's became the sum."""
        if self._step is None:
            self._step = self._pushes.acquire()
            self._model.collect_gradients_in(self._step.gradient_views)
        return self._step.gradient.tensor.zero_()

    def accrue(self, verdict: Verdict, samples: int) -> float:
        """Clip the step's gradient where it lies, then add it."""
        assert self._step is not None  # noqa: S101  begin_step was before
        gradient = self._step.gradient.tensor
        if verdict.scale != 1.0:
            gradient.mul_(verdict.scale)
        self._samples += samples
        if self._sum is None:
            self._sum, self._step = self._step, None
        else:
            self._sum.gradient.tensor.add_(gradient)
        return 1.0

    def take(self) -> Accrued | None:
        """The sum so far."""
        if self._sum is None:
            return None
        accrued = Accrued(self._sum, self._samples, 1.0)
        self._sum, self._samples = None, 0
        return accrued
