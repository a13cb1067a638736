"""Handwritten digits, whose steps last until the test wants them over."""

import time
from pathlib import Path

from torch import Tensor, nn

import digits
from disttrain import Batch


class SlowDigits(digits.Digits):
    """Each step takes `step_seconds` until the file `hurry` is there."""

    def __init__(self, step_seconds: float, hurry: str) -> None:
        super().__init__(width=8, hidden=32)
        self._step_seconds, self._hurry = step_seconds, Path(hurry)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        end = time.monotonic() + self._step_seconds
        while not self._hurry.exists() and time.monotonic() < end:
            time.sleep(0.05)
        return super().loss(model, batch)
