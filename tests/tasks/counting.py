"""A model that counts: element i of its only parameter is how often sample i was applied.

With plain SGD and rate 1 a step adds exactly 1 to the elements of its samples, so that a lost and a
doubled update show in the trained parameters, whatever the order.
"""

import time

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import disttrain
from disttrain import Batch, Split


class Counts(nn.Module):
    """The counter, and padding that divides the vector over shards and chunks."""

    def __init__(self, samples: int, padding: int) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(samples))
        self.padding = nn.Parameter(torch.zeros(padding))


class Numbers(Dataset[int]):
    """Sample i is the number i."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return index


class Counting(disttrain.Task):
    """`step_seconds` makes steps last, so that a test can act in the middle of an epoch."""

    def __init__(
        self,
        samples: int = 1024,
        padding: int = 64,
        step_seconds: float = 0.0,
        nan_from_sample: int | None = None,
    ) -> None:
        self.samples, self.padding = samples, padding
        self.step_seconds = step_seconds
        self.nan_from_sample = nan_from_sample

    def model(self) -> nn.Module:
        return Counts(self.samples, self.padding)

    def dataset(self, split: Split) -> Dataset[int]:
        return Numbers(self.samples if split == Split.TRAIN else 32)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(model, Counts)
        if self.step_seconds and torch.is_grad_enabled():
            time.sleep(self.step_seconds)
        total = -model.counts[batch].sum() - 0.0 * model.padding.sum()
        if self.nan_from_sample is not None and bool((batch >= self.nan_from_sample).any()):
            # The square root of zero has no finite gradient, while the loss stays a number.
            total = total + (0.0 * model.padding).sum().sqrt()
        return total

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        assert isinstance(model, Counts)
        return {"counted": model.counts.detach().mean() * len(batch)}
