"""A model that no process of a replica has alone, as the first one works with it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from disttrain.replica.agreement import Act
from disttrain.replica.evaluation import Computing
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.parts import WHOLE, Part
from disttrain.replica.ranks import SharedBatches
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.task.task import Split

Alone = Callable[[Any, LossContext], BatchLoss]
"""The task's loss, as soon as it may call the model."""


class ModelOfSeveral(ABC):
    """Belongs to the compute thread. All raise GroupLost."""

    model: nn.Module
    """What the task is given."""
    batch_part: Part = WHOLE
    """What the first process reads of each batch."""

    @property
    @abstractmethod
    def trained(self) -> nn.Module:
        """What lies in this process's flat vectors."""

    @abstractmethod
    def announce(self, act: Act, *words: int) -> None:
        """Let all processes do something that is not a call of the model."""

    @abstractmethod
    def loss(self, alone: Alone, batch: Any, context: LossContext) -> BatchLoss:
        """Of a step. Its backward finds the gradients of all processes. Raises TaskError."""

    def shared_batches(self, model: FlatModel) -> SharedBatches | None:
        """How the processes compute parts of each batch; None: the first one computes all of it."""
        del model
        return None

    @abstractmethod
    def evaluating(self, model: nn.Module, split: Split) -> Computing:
        """Makes the block for each batch. `model`: this one's, or one that was loaded."""

    @abstractmethod
    def loaded(self, file: str) -> AbstractContextManager[nn.Module]:
        """A model of the values in a file, inside the block. `file`: where all processes find it.

        Raises what reading does.
        """

    @abstractmethod
    def tensor(self, model: nn.Module, name: str) -> Tensor:
        """All of a tensor, by any of its names. `model`: as in `evaluating`."""
