"""What a step is held to: a gradient that can be used, frozen parameters as they were."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from disttrain.replica.model_tensors import ModelTensors
from disttrain.state.vector import FROZEN
from disttrain.task.errors import ModelError

LARGEST_NORM = 1e18
"""From here on a norm counts as not finite: its square is near the largest float32."""

CHUNK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}
"""Of one dot product. CUDA refuses more than 2^31 elements, and on a CPU the sum is in single
precision: over 2^24 equal elements it is wrong by 1%."""

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers by the bytes of an element."""


def squared_norm(gradient: Tensor) -> Tensor:
    """A flat vector's dot product with itself, in double precision, where the vector lies."""
    parts = torch.split(gradient, CHUNK_ELEMENTS[gradient.device.type])
    squares = [torch.dot(part, part) for part in parts]
    return torch.stack(squares).sum(dtype=torch.float64)


def check(squared_norm: float, loss: float, clip_norm: float | None) -> float:
    """Judge a gradient by its dot product with itself and the loss it comes from.

    The factor that clips its norm; 0 for one with which nobody may push or step.
    """
    if not (math.isfinite(loss) and 0 <= squared_norm < LARGEST_NORM**2):
        return 0.0
    norm = math.sqrt(squared_norm)
    if clip_norm is None or norm <= clip_norm:
        return 1.0
    return clip_norm / norm


def is_usable(values: Tensor) -> bool:
    """Whether a model may compute with them."""
    return check(squared_norm(values).item(), 0.0, None) > 0


class PresentGradients:
    """Which parameters have a gradient in a step: those without are to stay as they are.

    A parameter's `grad` is a view of the flat gradient, all zero before backward, so that its value
    says nothing. torch.optim skips a parameter whose `grad` is None. Belongs to the compute thread,
    but for what autograd calls during backward.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.present = [False] * len(parameters)
        """Of the step under way."""
        for number, parameter in enumerate(parameters):
            note = partial(self._accumulated, number)
            parameter.register_post_accumulate_grad_hook(note)  # type: ignore[no-untyped-call]

    def begin_step(self) -> None:
        self.present = [False] * len(self.present)

    def brought(self, number: int) -> None:
        """A parameter has one that backward did not put into its view."""
        self.present[number] = True

    def _accumulated(self, number: int, _parameter: Tensor) -> None:
        self.present[number] = True


class FrozenParameters:
    """Finds a frozen parameter that the loss changes: the shards would never know.

    A teacher that follows the model and a target network are usual ones. It remembers a sum of the
    bits of each; belongs to the compute thread.
    """

    def __init__(self, tensors: ModelTensors) -> None:
        self._tensors = tensors
        self._vectors = [vector for vector in tensors.vectors if vector.name == FROZEN]
        shared = [spec.name for vector in self._vectors for spec in tensors.specs(vector)]
        self._names = [*shared, *tensors.own]
        self._sums: list[int] = []

    def begin(self) -> None:
        self._sums = self._now()

    def check_after(self, steps: int) -> None:
        """Look after the steps 1, 2, 4, 8 and so on, so that it costs little. Raises ModelError."""
        if steps & (steps - 1) == 0:
            self.check()

    def check(self) -> None:
        """Raises ModelError with the name of the first parameter that is another one now."""
        if not self._sums:
            return
        for name, before, now in zip(self._names, self._sums, self._now(), strict=True):
            if before != now:
                message = (
                    f"the loss changes the parameter '{name}', which is frozen: frozen parameters "
                    "are sent to the shards once, or never, so the change would reach nobody. Make "
                    "it a buffer (register_buffer), which is sent with every push"
                )
                raise ModelError(message)

    def _now(self) -> list[int]:
        tensors = [one for vector in self._vectors for one in self._tensors.tensors(vector)]
        tensors += [place.tensor for place in self._tensors.own.values()]
        return torch.stack([_sum_of_bits(one) for one in tensors]).tolist() if tensors else []


def _sum_of_bits(tensor: Tensor) -> Tensor:
    flat = tensor.detach().reshape(-1)
    return flat.view(_BITS.get(tensor.element_size(), torch.uint8)).sum(dtype=torch.int64)
