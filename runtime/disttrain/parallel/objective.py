"""Losses that all partitions of a model find together, so that nobody gathers its output."""

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from disttrain.parallel.layers.partitioned import Value
from disttrain.parallel.partitioned import Partitioned


@dataclass(frozen=True)
class Objective(ABC):
    """What is computed of a model's output, or of its layers. Its fields are plain numbers."""

    @abstractmethod
    def check(self, part: Partitioned, samples: int, labels: Tensor | None) -> None:
        """Raises ValueError if the model has no such losses. Sends nothing.

        So one partition may ask before all begin to compute.
        """

    @abstractmethod
    def losses(self, part: Partitioned, x: Value, labels: Tensor | None) -> Tensor:
        """One number or more, (losses,), the same in all partitions, which all call this.

        `x`: samples, wherever they lie. `labels`: (samples,), in each partition; None where the
        objective needs none. Each partition has to go backward with the same gradients.
        """


class JointForward(ABC):
    """Stands for the forward() of a model whose parts other processes have, too."""

    @abstractmethod
    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002  As nn.Sequential's.
        """The whole output."""

    @abstractmethod
    def losses(self, objective: Objective, x: Tensor, labels: Tensor | None = None) -> Tensor:
        """As `Objective.losses`, of samples and labels that this process alone has."""


def joint_forward(model: nn.Module) -> JointForward | None:
    """How other processes compute with a model, too; None: it lies in this one."""
    found = inspect.unwrap(model.forward)
    return found if isinstance(found, JointForward) else None
