"""examples/language, whose steps take as long as they are told and little of a processor."""

import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import disttrain
from language import Language, Windows

SLOWER = "SLOWER"
"""The environment variable by which one replica's steps take that many times longer."""
STEPS_FILE = "STEPS_FILE"
"""The environment variable that names where each step leaves a line: when it began and ended."""
FORWARD = 1 / 3
"""Of a step; a backward pass costs about twice as much."""


class SlowLanguage(Language):
    """Sleeps until each part of a step would have ended elsewhere."""

    def __init__(self, step_seconds: float, tests: int = 256, **arguments: object) -> None:
        """`tests`: windows that are measured."""
        super().__init__(**arguments)  # type: ignore[arg-type]  # Language names what is wrong.
        self._tests = tests
        self._seconds = step_seconds * float(os.environ.get(SLOWER, "1"))
        self._began = 0.0
        file = os.environ.get(STEPS_FILE)
        self._steps = Path(file) if file else None

    def model(self) -> nn.Module:
        """Gradients of the blocks are ready one after another, as they would be."""
        model = super().model()
        blocks = model.get_submodule("blocks")
        count = len(list(blocks.children()))
        for index, block in enumerate(blocks.children()):
            part = FORWARD + (1 - FORWARD) * (count - index) / count

            def slow(_: nn.Module, given: tuple[Tensor, ...], part: float = part) -> None:
                if given[0].requires_grad:
                    given[0].register_hook(lambda _: self._reach(part))  # type: ignore[no-untyped-call]

            block.register_forward_pre_hook(slow)
        return model

    def dataset(self, split: disttrain.Split) -> Dataset[tuple[Tensor, Tensor]]:
        return self.windows(split)

    def windows(self, split: disttrain.Split) -> Windows:
        found = super().dataset(split)
        assert isinstance(found, Windows)
        if split == disttrain.Split.TEST:
            found.given, found.following = (
                found.given[: self._tests],
                found.following[: self._tests],
            )
        return found

    def bits_per_byte(self, model: nn.Module) -> float:
        """Of the test text, as an evaluation measures it."""
        tests = self.windows(disttrain.Split.TEST)
        with torch.no_grad():
            found = self.measure(model, (tests.given, tests.following))
        return float(found["bits_per_byte"]) / len(tests)

    def loss(self, model: nn.Module, batch: disttrain.Batch) -> Tensor:
        self._began = time.monotonic()
        found = super().loss(model, batch)
        if torch.is_grad_enabled():
            self._reach(FORWARD)
        return found

    def _reach(self, part: float) -> None:
        """Sleep until so much of a step would be done, and say when it all is."""
        left = self._began + part * self._seconds - time.monotonic()
        if left > 0:
            time.sleep(left)
        if part == 1 and self._steps is not None:
            with self._steps.open("a") as file:
                file.write(f"{self._began} {time.monotonic()}\n")
