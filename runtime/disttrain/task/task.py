"""The class that users extend: the model, the data, the loss and the measures of a job."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from disttrain.task.groups import ParameterGroup
from disttrain.task.loss import Loss

Batch: TypeAlias = Any
"""What `Task.collate` makes of samples: a tensor, or a tuple, list or dict of tensors."""


class Split(StrEnum):
    """Which part of the data; equal to the plain texts "train" and "test"."""

    TRAIN = "train"
    """What the parameters are computed from."""

    TEST = "test"
    """What evaluations measure; never trained on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputPipeline:
    """How a replica reads its samples."""

    workers: int = 0
    """Processes that read and collate, forked from the replica before its first step. 0: a thread
    of the replica does, which costs no start-up and suits data that lies in memory."""

    prefetch: int = 2
    """Batches that are ready before the step that needs them, per worker."""

    def __post_init__(self) -> None:
        if self.workers < 0 or self.prefetch < 1:
            message = (
                "an input pipeline has at least 0 workers and prefetches at least 1 batch, "
                f"got workers={self.workers}, prefetch={self.prefetch}"
            )
            raise ValueError(message)


class Task(ABC):
    """What is trained. Devices, processes, the optimizer, the order of data are the framework's.

    Every replica makes its own task from the same arguments. All methods are called on the
    training thread, but for the data set and `collate`, which belong to the input pipeline.
    """

    @abstractmethod
    def model(self) -> nn.Module:
        """Return a new model on the CPU, with float32 parameters.

        torch is seeded alike in all replicas before; replica 0's values are those that count.
        """

    @abstractmethod
    def dataset(self, split: Split) -> Dataset[Any]:
        """Return the samples of a split, the same in every process: `__len__` and `__getitem__`.

        With `__getitems__(indices)` it is asked for a batch at once; see `collate`. For data that
        only streams well return `Sources`.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor | Loss:
        """Return the mean loss over the batch: a scalar with a gradient, on the model's device.

        Or a `Loss`, if something else than the samples counts alike. The model is in training
        mode, in evaluations in evaluation mode; the batch is on its device. A third parameter
        `context` gets a `LossContext`.
        """

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002 - The signature is for those who override it.
        """Return SUMS over the batch by name, e.g. {"accuracy": number of correct predictions}.

        The framework adds them up and divides by the number of samples. Called without gradients,
        the model in evaluation mode. By default nothing is measured.
        """
        return {}

    def parameter_groups(
        self,
        model: nn.Module,  # noqa: ARG002 - As above.
    ) -> Sequence[ParameterGroup]:
        """Return parameters to train with another rate or weight decay than the manifest's.

        What no group names has the manifest's. Every replica must return the same.
        """
        return ()

    def collate(self, samples: Any) -> Batch:
        """Make a batch of a list of samples: tensors are stacked, dicts and tuples item by item.

        What `__getitems__` of a data set returns is a finished batch if it is no list.
        """
        return default_collate(samples) if isinstance(samples, list) else samples

    def input_pipeline(self) -> InputPipeline:
        """Say how samples are read."""
        return InputPipeline()
