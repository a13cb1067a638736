"""The sparse autoencoder of Coates et al. 2013, section 3, at the size of CIFAR-10."""

import math
from pathlib import Path
from typing import Final, cast

import torch
from torch import Tensor, nn
from whitening import WhitenedImages, read_images, whitening_filter

import disttrain
from disttrain import Batch, LossContext, ParameterGroup, Split
from disttrain.parallel import (
    L2Pool2d,
    LocalContrastNorm2d,
    ReconstructionTarget,
    UnitFilters2d,
    reconstruction_losses,
)

HERE = Path(__file__).parent
STACKS = 2


class Autoencoder(disttrain.Task):
    """Parquet files with the columns img {bytes, path} and label; paths are relative to this file.

    `channels`: 4 * channels neurons have the same field. `stack_samples`: greedy training, in which
    each stack has so many samples before the next one's turn; 0 trains all of them jointly.
    """

    SAMPLES: Final = {
        "train": "../data/cifar10-sample-train.parquet",
        "test": "../data/cifar10-sample-test.parquet",
    }

    def __init__(
        self,
        train: str = SAMPLES["train"],
        test: str = SAMPLES["test"],
        *,
        channels: int = 8,
        stack_samples: int = 0,
    ) -> None:
        self.files = {"train": HERE / train, "test": HERE / test}
        self.channels, self.stack_samples = channels, stack_samples

    def model(self) -> nn.Sequential:
        return autoencoder(self.channels)

    def dataset(self, split: Split) -> WhitenedImages:
        pixels, labels = read_images(self.files[split])
        return WhitenedImages(pixels, labels, whitening_filter(self.files["train"]))

    def loss(self, model: nn.Module, batch: Batch, context: LossContext | None = None) -> Tensor:
        images, _ = batch
        stack = self.stack_at(0 if context is None else context.samples)
        if stack is None or context is None:
            return torch.stack(reconstruction_losses(model, images)).sum()  # type: ignore[arg-type]
        (found,) = reconstruction_losses(model, images, first=stack, last=stack)  # type: ignore[arg-type]
        return found

    def stack_at(self, samples: int) -> int | None:
        """Whose turn it is after so many samples; None: all are trained."""
        if not self.stack_samples:
            return None
        return min(samples // self.stack_samples, STACKS - 1)

    def parameter_groups(self, model: nn.Module) -> list[ParameterGroup]:
        """A loss is some thousand times steeper in alpha than in a filter."""
        alphas = [name for name, _ in model.named_parameters() if name.endswith("alpha")]
        return [ParameterGroup(parameters=alphas, learning_rate=0.02)]

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The squared error of each stack's reconstruction, for each number of its input."""
        images, _ = batch
        errors = reconstruction_losses(model, images, sparsity=0.0)  # type: ignore[arg-type]
        numbers = (images[0].numel(), self.channels * 26 * 26)
        return {
            f"squared_error_{stack}": len(images) * error / count
            for stack, (error, count) in enumerate(zip(errors, numbers, strict=True), start=1)
        }


def autoencoder(channels: int) -> nn.Sequential:
    """Two stacks of 8 x 8 filters in blocks of 2 x 2, one every 2 pixels, and pools of 5 x 5."""
    stacks: list[nn.Module] = []
    inputs, size = 3, 32
    for _ in range(STACKS):
        filters = UnitFilters2d(inputs, channels, 8, input_size=(size, size), stride=2, block=2)
        side, _ = filters.output_size(size, size)
        # A reconstruction larger than its target would make the first steps rough.
        alpha = inputs * size**2 / (channels * side**2)
        stacks.append(
            nn.Sequential(
                ReconstructionTarget(min(0.5, alpha)),
                filters,
                L2Pool2d(5, 1, 2),
                LocalContrastNorm2d(5),
            )
        )
        inputs, size = channels, side
    return nn.Sequential(*stacks)


def first_filters(model: nn.Sequential) -> Tensor:
    """(neurons, 3, 8, 8), of unit norm, from the block in the middle on."""
    filters = cast("UnitFilters2d", model.get_submodule("0.1")).filters().detach()
    middle = len(filters) // 2
    found = filters[middle, middle:].flatten(0, 1)
    norms: Tensor = torch.linalg.vector_norm(found, dim=(1, 2, 3), keepdim=True)
    return found / norms


def responses(model: nn.Sequential, images: Tensor) -> Tensor:
    """Of all neurons behind each stack: (images, neurons)."""
    found = []
    for stack in model:
        images = stack(images)
        found.append(images.flatten(1))
    return torch.cat(found, dim=1)


def optimal_stimulus(model: nn.Sequential, neuron: int, steps: int = 60) -> Tensor:
    """The whitened image of a fixed norm to which a neuron responds most: gradient ascent."""
    norm = math.sqrt(3 * 32 * 32)
    drawn: Tensor = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for _ in range(steps):
        image = (drawn * (norm / drawn.norm())).requires_grad_()
        (gradient,) = torch.autograd.grad(responses(model, image)[0, neuron], [image])
        step = gradient / gradient.norm().clamp(min=1e-12)
        drawn = image.detach() + 0.1 * norm * step
    found: Tensor = drawn[0] * (norm / drawn.norm())
    return found
