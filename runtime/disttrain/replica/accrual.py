"""From the gradient of a step to the gradient of a push: the accrued gradients of Algorithm 1.1."""

from typing import NamedTuple, Protocol

import torch
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

    def accrue(self, verdict: Verdict, samples: int) -> None:
        """Add the step's gradient, which is finite, to what the next push carries."""
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

    def accrue(self, verdict: Verdict, samples: int) -> None:
        """The clip factor travels in the header."""
        assert self._outgoing is not None  # noqa: S101  begin_step was before
        self._accrued = Accrued(self._outgoing, samples, verdict.scale)

    def take(self) -> Accrued | None:
        """The gradient of the last step."""
        accrued, self._accrued = self._accrued, None
        if accrued is not None:
            self._outgoing = None
        return accrued


class SeveralSteps:
    """A push carries the sum of several steps, each clipped by itself."""

    def __init__(self, model: FlatModel, pushes: Buffers) -> None:
        self._pushes = pushes
        self._gradient, views = model.new_gradient()
        model.collect_gradients_in(views)
        self._outgoing: Outgoing | None = None
        self._samples = 0

    def begin_step(self) -> Tensor:
        """The step's gradient stays here."""
        return self._gradient.zero_()

    def accrue(self, verdict: Verdict, samples: int) -> None:
        """Waits only if all buffers are on their way."""
        self._samples += samples
        if self._outgoing is not None:
            self._outgoing.gradient.tensor.add_(self._gradient, alpha=verdict.scale)
            return
        self._outgoing = self._pushes.acquire()
        torch.mul(self._gradient, verdict.scale, out=self._outgoing.gradient.tensor)

    def take(self) -> Accrued | None:
        """The sum so far."""
        if self._outgoing is None:
            return None
        accrued = Accrued(self._outgoing, self._samples, 1.0)
        self._outgoing, self._samples = None, 0
        return accrued
