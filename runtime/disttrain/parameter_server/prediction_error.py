"""How far predicted parameters are from those that come."""

import math

import torch
from torch import Tensor

from disttrain.parameter_server.update_rule import FetchContext, PushContext

_REST_PUSHES = 16
"""Chunks applied between two measurements, so that these cost next to nothing."""
_PATIENCE_PUSHES = 1024
"""Chunks applied until a prediction whose gradient has not come is given up."""
_WEIGHT = 0.125
"""Of a new measurement in the mean."""


class PredictionErrors:
    """Follows one chunk of one fetch at a time: Sato et al. 2017, section 3.1 and figure 3, right.

    A measurement is the distance from the predicted parameters to those after the gradient that was
    computed on them, divided by the distance that there would be without a prediction. Memory: two
    copies of one chunk.
    """

    def __init__(self) -> None:
        self.by_sender: dict[int, float] = {}
        """Means of the latest measurements."""
        self._followed: _Followed | None = None
        self._applied = 0
        """Chunks, since the latest measurement or the beginning of one."""

    def served(self, parameters: Tensor, predicted: Tensor, fetch: FetchContext) -> None:
        """A chunk is given out."""
        if self._followed is None and self._applied >= _REST_PUSHES:
            self._followed, self._applied = _Followed(parameters, predicted, fetch), 0

    def applied(self, parameters: Tensor, push: PushContext) -> None:
        """A gradient has changed these parameters, which may be a part of a chunk."""
        self._applied += 1
        followed = self._followed
        if followed is None:
            return
        if followed.is_of(parameters, push):
            self._note(push.sender, followed.error(parameters))
            self._followed = None
        elif self._applied > _PATIENCE_PUSHES or followed.is_past(push):
            self._followed = None

    def _note(self, sender: int, error: float) -> None:
        if math.isfinite(error):
            mean = self.by_sender.get(sender, error)
            self.by_sender[sender] = mean + _WEIGHT * (error - mean)


class _Followed:
    """What was given out, and of which version it is."""

    def __init__(self, parameters: Tensor, predicted: Tensor, fetch: FetchContext) -> None:
        self._place = parameters.data_ptr()
        self._sender, self._version = fetch.sender, fetch.steps
        self._parameters, self._predicted = parameters.clone(), predicted.clone()

    def is_of(self, parameters: Tensor, push: PushContext) -> bool:
        return self._version == self._computed_on(push) and parameters.data_ptr() == self._place

    def is_past(self, push: PushContext) -> bool:
        """Whether its sender pushes what it computed on something later."""
        version = self._computed_on(push)
        return version is not None and version > self._version

    def error(self, parameters: Tensor) -> float:
        """NaN where nothing has moved."""
        parts = slice(parameters.numel())
        missed = torch.linalg.vector_norm(parameters - self._predicted[parts])
        moved = torch.linalg.vector_norm(parameters - self._parameters[parts])
        return float(missed / moved)

    def _computed_on(self, push: PushContext) -> int | None:
        """The version, in updates; None: another sender's, or unknown."""
        is_known = push.sender == self._sender and push.staleness >= 0
        return push.steps - push.staleness if is_known else None
