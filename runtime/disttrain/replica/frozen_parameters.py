"""Whether the task's loss changes parameters that are not trained: the shards would never know.

A teacher that follows the model and a target network are usual ones.
"""

import torch
from torch import Tensor

from disttrain.replica.model_tensors import ModelTensors
from disttrain.state.vector import FROZEN
from disttrain.task.errors import ModelError

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers by the bytes of an element."""


class FrozenParameters:
    """Remembers a sum of the bits of each; belongs to the compute thread."""

    def __init__(self, tensors: ModelTensors) -> None:
        self._tensors = tensors
        self._vectors = [vector for vector in tensors.vectors if vector.name == FROZEN]
        self._names = [spec.name for vector in self._vectors for spec in tensors.specs(vector)]
        self._sums: list[int] = []

    def begin(self) -> None:
        """What the model holds now is what was fetched."""
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
                    "are sent to the shards once, so the change would be lost. Make it a buffer "
                    "(register_buffer), which is sent with every push"
                )
                raise ModelError(message)

    def _now(self) -> list[int]:
        tensors = [one for vector in self._vectors for one in self._tensors.tensors(vector)]
        return torch.stack([_sum_of_bits(one) for one in tensors]).tolist() if tensors else []


def _sum_of_bits(tensor: Tensor) -> Tensor:
    return tensor.detach().view(_BITS[tensor.element_size()]).sum(dtype=torch.int64)
