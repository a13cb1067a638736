"""Which parameters have a gradient in a step: those without are to stay as they are.

A parameter's `grad` is a view of the flat gradient, all zero before backward, so that its value
says nothing. torch.optim skips a parameter whose `grad` is None.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from disttrain.task.errors import LossError


class PresentGradients:
    """Belongs to the compute thread, but for what autograd calls during backward."""

    def __init__(self, parameters: Sequence[Tensor], names: Sequence[str]) -> None:
        self._names = names
        self._before = [False] * len(parameters)
        self.present = [False] * len(parameters)
        """Of the step under way."""
        for number, parameter in enumerate(parameters):
            note = partial(self._accumulated, number)
            parameter.register_post_accumulate_grad_hook(note)  # type: ignore[no-untyped-call]

    def begin_step(self) -> None:
        """None has one yet."""
        self._before = [a or b for a, b in zip(self._before, self.present, strict=True)]
        self.present = [False] * len(self.present)

    def brought(self, number: int) -> None:
        """A parameter has one that backward did not put into its view."""
        self.present[number] = True

    def check_velocity(self) -> None:
        """Raises LossError for a parameter that momentum would go on moving without a gradient."""
        for name, before, now in zip(self._names, self._before, self.present, strict=True):
            if before and not now:
                message = (
                    f"the parameter '{name}' had a gradient in earlier steps and has none in this "
                    "one: its velocity on the shards would go on moving it, which torch.optim "
                    "does not. Use sgd or adagrad, or add 0 * parameter.sum() to the loss if it "
                    "shall move"
                )
                raise LossError(message)

    def _accumulated(self, number: int, _parameter: Tensor) -> None:
        self.present[number] = True
