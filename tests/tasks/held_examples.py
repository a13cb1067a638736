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


class Gate:
    """No process passes more than `steps` times before a file is there.

    So whoever is killed has its next incarnation while there is work left.
    """

    def __init__(self, file: str, steps: int) -> None:
        self._file, self._steps_left = Path(file), steps

    def step(self) -> None:
        """Wait, if this is a step of training."""
        if torch.is_grad_enabled():
            while not self._steps_left and not self._file.exists():
                time.sleep(0.01)
            self._steps_left = max(0, self._steps_left - 1)


class Digits(digits.Digits):
    """Handwritten digits."""

    def __init__(self, *, gate: str, steps: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._gate = Gate(gate, steps)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        self._gate.step()
        return super().loss(model, batch)


class Speech(speech.Speech):
    """Spoken digits."""

    def __init__(self, *, gate: str, steps: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._gate = Gate(gate, steps)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        self._gate.step()
        return super().loss(model, batch)


class Language(language.Language):
    """A text's bytes."""

    def __init__(self, *, gate: str, steps: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._gate = Gate(gate, steps)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        self._gate.step()
        return super().loss(model, batch)
