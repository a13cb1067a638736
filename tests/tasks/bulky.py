"""A model that is one long vector with next to no activations, to see what its memory is."""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import disttrain
from disttrain import Batch, Split


class Vector(nn.Module):
    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(parameters))


class Numbers(Dataset[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Bulky(disttrain.Task):
    """The loss is the vector's mean, whatever the sample."""

    def __init__(self, parameters: int = 1000) -> None:
        self.parameters = parameters

    def model(self) -> nn.Module:
        return Vector(self.parameters)

    def dataset(self, split: Split) -> Dataset[int]:
        return Numbers(1_000_000 if split is Split.TRAIN else 100)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        del batch
        assert isinstance(model, Vector)
        return model.weight.sum() / self.parameters
