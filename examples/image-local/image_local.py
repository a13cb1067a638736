"""The image model of Dean et al. 2012, section 5, at the size of CIFAR-10."""

import io
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset

import disttrain
from disttrain import Batch, Split
from disttrain.parallel import (
    L2Pool2d,
    LocalContrastNorm2d,
    LocallyConnected2d,
    divided,
    one_vs_all,
)

HERE = Path(__file__).parent
CLASSES = 10


class ImageLocal(disttrain.Task):
    """Parquet files with the columns img {bytes, path} and label; paths are relative to this file.

    `channels`: of each stage, so that 4 * channels nodes have the same field.
    """

    def __init__(
        self,
        train: str = "../data/cifar10-sample-train.parquet",
        test: str = "../data/cifar10-sample-test.parquet",
        *,
        channels: int = 8,
    ) -> None:
        self.files = {"train": HERE / train, "test": HERE / test}
        self.channels = channels

    def model(self) -> nn.Module:
        return image_network(self.channels)

    def dataset(self, split: Split) -> Dataset[tuple[Tensor, Tensor]]:
        return Photographs(*read_images(self.files[split]))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """A logistic loss for each class, against all others."""
        images, labels = batch
        return CLASSES * one_vs_all(divided(model, images), labels)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        images, labels = batch
        return {"accuracy": (model(images).argmax(dim=1) == labels).sum()}


def image_network(channels: int) -> nn.Sequential:
    """Three stages of untied 10 x 10 filters, pooling and contrast normalisation; a linear output.

    Of 32 x 32 pixels they make 12 x 12, 6 x 6 and 3 x 3 pools.
    """
    layers: list[nn.Module] = []
    inputs, size, padding = 3, 32, 0
    for _ in range(3):
        filters = LocallyConnected2d(
            inputs, channels, 10, input_size=(size, size), stride=2, padding=padding, block=2
        )
        nn.init.normal_(filters.weight, std=filters.weight.shape[3] ** -0.5)
        layers += [filters, L2Pool2d(3, 2, 1), LocalContrastNorm2d(5)]
        size, _ = filters.output_size(size, size)
        inputs, size, padding = channels, size // 2, 4
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * size * size, CLASSES))


class Photographs(Dataset[tuple[Tensor, Tensor]]):
    """Bytes in memory; a batch is numbers of mean 0 and deviation 1."""

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return normalised(self.pixels[index]), self.labels[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return normalised(self.pixels[indices]), self.labels[indices]


def normalised(pixels: Tensor) -> Tensor:
    """Mean and deviation are those of CIFAR-10."""
    return (pixels.float() - 120.7) / 64.2


@cache
def read_images(path: Path) -> tuple[Tensor, Tensor]:
    """Bytes [samples, 3, 32, 32], decoded once per process, and their labels."""
    table = pq.read_table(path)
    pixels = np.stack([decode(image["bytes"]) for image in table["img"].to_pylist()])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.tensor(table["label"].to_pylist())


def decode(encoded: bytes) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """A JPEG or PNG file as bytes [32, 32, 3]."""
    with Image.open(io.BytesIO(encoded), formats=("JPEG", "PNG")) as image:
        return np.asarray(image.convert("RGB"))
