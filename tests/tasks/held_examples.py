"""The tasks of three examples, whose training waits at a gate while a test breaks its parts."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import digits
import language
import speech
from disttrain import Batch


class Held:
    """No process computes more than `steps` losses to train with before the file `gate` is there.

    So whoever is killed has its next incarnation while there is work left. Comes before the task.
    """

    def __init__(self, *, gate: str, steps: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._gate, self._steps_left = Path(gate), steps

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        if torch.is_grad_enabled():
            while not self._steps_left and not self._gate.exists():
                time.sleep(0.01)
            self._steps_left = max(0, self._steps_left - 1)
        found: Tensor = super().loss(model, batch)  # type: ignore[misc]  # The task's.
        return found


class Digits(Held, digits.Digits):
    """Handwritten digits."""


class Speech(Held, speech.Speech):
    """Spoken digits."""


class Language(Held, language.Language):
    """A text's bytes."""
