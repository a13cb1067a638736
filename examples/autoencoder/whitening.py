"""Photographs whose contrast is normalised, and which are whitened, before a network sees them."""

import io
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

PATCH = 7
MOST_IMAGES = 2000
"""Of the training images, from which the filter is computed: two million patches."""
NOISE = 0.001
"""Added to each variance: directions that vary less than this are left weak."""


class WhitenedImages(Dataset[tuple[Tensor, Tensor]]):
    """Bytes in memory; a batch is whitened when it is asked for."""

    def __init__(self, pixels: Tensor, labels: Tensor, whitening: Tensor) -> None:
        self.pixels, self.labels, self.whitening = pixels, labels, whitening

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        images, labels = self.__getitems__([index])
        return images[0], labels[0]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return whitened(self.pixels[indices], self.whitening), self.labels[indices]


def contrast_normalised(pixels: Tensor) -> Tensor:
    """Each image has mean 0 and about deviation 1; nearly even ones stay faint."""
    images = pixels.float()
    images = images - images.mean(dim=(1, 2, 3), keepdim=True)
    return images / (images.square().mean(dim=(1, 2, 3), keepdim=True) + 10.0).sqrt()


def whitened(pixels: Tensor, whitening: Tensor) -> Tensor:
    """As what surrounds a pixel predicts it everywhere alike, one filter does for all places."""
    images = functional.pad(contrast_normalised(pixels), (PATCH // 2,) * 4, mode="replicate")
    return functional.conv2d(images, whitening)


@cache
def whitening_filter(path: Path) -> Tensor:
    """(3, 3, PATCH, PATCH): of ZCA whitening of patches, what it does to the one in the middle."""
    images = contrast_normalised(read_images(path)[0][:MOST_IMAGES])
    covariance = torch.zeros(3 * PATCH**2, 3 * PATCH**2, dtype=torch.float64)
    count = 0
    for some in torch.split(images, 100):
        patches = functional.unfold(some, PATCH).permute(1, 0, 2).flatten(1).double()
        covariance += patches @ patches.T
        count += patches.shape[1]
    values, vectors = torch.linalg.eigh(covariance / count)
    zca = vectors @ torch.diag((values + NOISE).rsqrt()) @ vectors.T
    middle: Tensor = zca.view(3, PATCH, PATCH, -1)[:, PATCH // 2, PATCH // 2]
    return middle.view(3, 3, PATCH, PATCH).float()


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
