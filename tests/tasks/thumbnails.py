"""CIFAR-10 at 8 x 8 pixels, and a network that a core trains in a minute."""

import sys
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from disttrain import Split

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "cifar10"))

from cifar10 import Cifar10, Photographs, read_images


class Thumbnails(Cifar10):
    """Each number is the mean of sixteen pixels."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3 * 8 * 8, 64), nn.LeakyReLU(0.01), nn.Linear(64, 10))

    def dataset(self, split: Split) -> Dataset[tuple[Tensor, Tensor]]:
        return Photographs(*thumbnails(self.files[split]))


@cache
def thumbnails(file: Path) -> tuple[Tensor, Tensor]:
    """Numbers [images, 192] with about mean 0 and deviation 1, and labels."""
    images, labels = read_images(file)
    parts = range(0, len(images), 1000)
    means = [functional.avg_pool2d(images[at : at + 1000].float(), 4).flatten(1) for at in parts]
    return torch.cat(means).sub_(120.7).div_(58.0), labels
