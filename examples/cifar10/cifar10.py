"""Small photographs in ten classes and the convolutional network of the PP-ASGD paper."""

import io
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

import disttrain
from disttrain import Batch, Split

HERE = Path(__file__).parent


class Cifar10(disttrain.Task):
    """Parquet files with the columns img {bytes, path} and label; no augmentation.

    Paths are relative to this file.
    """

    def __init__(
        self,
        train: str = "../data/cifar10-sample-train.parquet",
        test: str = "../data/cifar10-sample-test.parquet",
        *,
        channels_last: bool = True,
    ) -> None:
        self.files = {"train": HERE / train, "test": HERE / test}
        self.channels_last = channels_last

    def model(self) -> nn.Module:
        return cifar_network(channels_last=self.channels_last)

    def dataset(self, split: Split) -> Dataset[tuple[Tensor, Tensor]]:
        return Photographs(*read_images(self.files[split]))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        return functional.cross_entropy(model(images), labels)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        images, labels = batch
        return {"accuracy": (model(images).argmax(dim=1) == labels).sum()}


def cifar_network(*, channels_last: bool = True) -> nn.Module:
    """CCPCPCPFFF with 3x3 filters and max(a, 0.01 a); takes bytes, returns ten scores."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = nn.Sequential(
        Normalise(layout),
        nn.Conv2d(3, 32, 3, padding=1), nn.LeakyReLU(0.01),
        nn.Conv2d(32, 32, 3, padding=1), nn.LeakyReLU(0.01), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.LeakyReLU(0.01), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.LeakyReLU(0.01), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 256), nn.LeakyReLU(0.01),
        nn.Linear(256, 128), nn.LeakyReLU(0.01),
        nn.Linear(128, 10),
    )  # fmt: skip
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            # He et al. 2015: with PyTorch's own scale the signal fades from layer to layer, and
            # training begins with some ten thousand samples of standstill.
            nn.init.kaiming_normal_(layer.weight, a=0.01)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


class Normalise(nn.Module):
    """Bytes to numbers of mean 0 and deviation 1: those of CIFAR-10 are 120.7 and 64.2."""

    def __init__(self, layout: torch.memory_format) -> None:
        super().__init__()
        self.layout = layout

    def forward(self, pixels: Tensor) -> Tensor:
        numbers = pixels.to(dtype=torch.float32, memory_format=self.layout)
        return numbers.sub_(120.7).div_(64.2)


class Photographs(Dataset[tuple[Tensor, Tensor]]):
    """Decoded images in memory; a batch is taken with one indexing instead of one per sample."""

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.pixels[index], self.labels[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self.pixels[indices], self.labels[indices]


@cache
def read_images(path: Path) -> tuple[Tensor, Tensor]:
    """The images as bytes [samples, 3, 32, 32], decoded once per process, and their labels."""
    table = pq.read_table(path)
    pixels = np.stack([decode(image["bytes"]) for image in table["img"].to_pylist()])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.tensor(table["label"].to_pylist())


def decode(encoded: bytes) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """A JPEG or PNG file as bytes [32, 32, 3]."""
    with Image.open(io.BytesIO(encoded), formats=("JPEG", "PNG")) as image:
        return np.asarray(image.convert("RGB"))
