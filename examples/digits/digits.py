"""Handwritten digits, 8 x 8 pixels, and a small convolutional network."""

import gzip
from importlib.metadata import distribution

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

import disttrain
from disttrain import Batch, Split


class Digits(disttrain.Task):
    """Every fifth image is a test image."""

    def __init__(self, width: int = 16, hidden: int = 64) -> None:
        self.width, self.hidden = width, hidden

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, self.width, 3, padding=1), nn.LeakyReLU(),
            nn.Conv2d(self.width, 2 * self.width, 3, padding=1), nn.LeakyReLU(),
            nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(2 * self.width * 4 * 4, self.hidden), nn.LeakyReLU(),
            nn.Linear(self.hidden, 10),
        )  # fmt: skip

    def dataset(self, split: Split) -> Dataset[tuple[Tensor, Tensor]]:
        pixels, labels = read_digits()
        is_test = torch.arange(len(labels)) % 5 == 0
        chosen = is_test if split == "test" else ~is_test
        return Images(pixels[chosen], labels[chosen])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        return functional.cross_entropy(model(images), labels)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        images, labels = batch
        return {"accuracy": (model(images).argmax(dim=1) == labels).sum()}


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Images in memory; a batch is taken with one indexing instead of one per sample."""

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.pixels[index], self.labels[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self.pixels[indices], self.labels[indices]


def read_digits() -> tuple[Tensor, Tensor]:
    """The pixels of all 1797 images, from 0 to 1, and their labels."""
    # What sklearn.datasets.load_digits reads. Importing sklearn for it takes a second per process.
    path = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    with gzip.open(str(path)) as file:
        rows = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    return rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long()
