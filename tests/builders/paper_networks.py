"""The networks and machines of the figures in which papers show what partitions gain.

Dean et al. 2012, figure 3, and Coates et al. 2013, figures 5 and 6.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from disttrain.parallel import (
    L2Pool2d,
    LocalContrastNorm2d,
    LocallyConnected2d,
    ReconstructionTarget,
    UnitFilters2d,
)
from disttrain.parallel.counting import Counts, Loss, counted
from disttrain.parallel.pricing import Machine
from disttrain.parallel.windows import square_grid

BATCH = 96
"""As Coates et al. 2013; Dean et al. 2012 do not tell theirs."""
CLASSES = 21_000

CLUSTER_OF_2012 = Machine(
    flops_per_second=100e9, bytes_per_second=1.25e8, latency_seconds=0.0003, jitter=0.1
)
"""20 cores with 5 GFLOP/s each, and 1 Gbit/s. The paper tells the cores alone."""
GPU_OF_2013 = Machine(
    flops_per_second=1e12, bytes_per_second=56e9 / 8 / 4, latency_seconds=0.000005
)
"""Section 2: 1 TFLOP/s by each GPU, and 56 Gbit/s and "usually microseconds" for four of them."""


@dataclass(frozen=True, slots=True)
class Network:
    """One line of a figure."""

    make: Callable[[], nn.Sequential]
    sample: tuple[int, ...]
    loss: Loss

    def parameters(self) -> int:
        return sum(each.numel() for each in self._without_values().parameters())

    def counts(self, partitions: Sequence[int]) -> list[Counts]:
        """Of so many partitions each, on a grid that is as square as it can be."""
        model = self._without_values()
        return [
            counted(model, square_grid(each), self.sample, BATCH, loss=self.loss)
            for each in partitions
        ]

    def _without_values(self) -> nn.Sequential:
        with torch.device("meta"):
            return self.make()


def speech(width: int = 2560) -> nn.Sequential:
    """Dean et al. 2012, section 5: 42 million parameters, fully connected."""
    layers: list[nn.Module] = [nn.Linear(11 * 40, width), nn.Sigmoid()]
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(width, 8192))


def image(neurons: int) -> nn.Sequential:
    """Dean et al. 2012, section 5: so many neurons of each stage have the same 10 x 10 patch.

    The paper tells no pools, steps or borders. With a patch at every place of 100 x 100 pixels, and
    pools that are fewer than places only before the 21,000 outputs, 36 neurons make its 1.7 billion
    parameters.
    """
    layers: list[nn.Module] = []
    channels, size = 3, 100
    for step in (1, 1, 8):
        filters = LocallyConnected2d(channels, neurons, 10, input_size=(size, size))
        layers += [filters, L2Pool2d(3, step, 1), LocalContrastNorm2d(5)]
        channels, size = neurons, -(-(size - 9) // step)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * size * size, CLASSES))


def small_image() -> nn.Sequential:
    """What is measured on two cores: images of 64 x 64, 100 outputs."""
    return nn.Sequential(
        LocallyConnected2d(3, 8, 10, input_size=(64, 64), stride=2, block=2, bias=False),
        L2Pool2d(3, 2, 1),
        LocalContrastNorm2d(5),
        LocallyConnected2d(8, 8, 10, input_size=(28, 28), stride=2, block=2, bias=False),
        L2Pool2d(3, 2, 1),
        nn.Flatten(),
        nn.Linear(8 * 10 * 10, 100),
    )


def autoencoder(size: int, deep: int, field: int = 20, *, stacks: int = 3) -> nn.Sequential:
    """Coates et al. 2013, section 5.2: blocks of 4 x 4 x `deep` neurons, one every 4 pixels.

    Images have `size` rows. The first fields are 20 x 20, the others `field` x `field`; all lie
    inside what they look at, which shrinks by that. Pools are 5 x 5.
    """
    layers: list[nn.Module] = []
    channels, kernel = 3, 20
    for _ in range(stacks):
        filters = UnitFilters2d(channels, deep, kernel, input_size=(size, size), stride=4, block=4)
        layers += [ReconstructionTarget(), filters, L2Pool2d(5, 1, 2), LocalContrastNorm2d(5)]
        channels, kernel, (size, _) = deep, field, filters.output_size(size, size)
    return nn.Sequential(*layers)


def billions(size: int) -> nn.Sequential:
    """What is measured on a GPU: as the autoencoder, with ten outputs to be told apart."""
    layers: list[nn.Module] = []
    channels = 3
    for _ in range(3):
        layer = LocallyConnected2d(
            channels, 8, 20, input_size=(size, size), stride=4, block=4, bias=False
        )
        layers += [layer, L2Pool2d(5, 1, 2), LocalContrastNorm2d(5)]
        channels, size = 8, 4 * ((size - 20) // 4 + 1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * size * size, 10))


def _image(neurons: int) -> Network:
    return Network(lambda: image(neurons), (3, 100, 100), Loss.OF_PARTS)


def _autoencoder(size: int, deep: int, field: int = 20) -> Network:
    make = lambda: autoencoder(size, deep, field)  # noqa: E731  As above.
    return Network(make, (3, size, size), Loss.OF_STACKS)


DISTBELIEF = {
    "speech": Network(speech, (11 * 40,), Loss.OF_PARTS),
    **{f"image, {each} neurons per patch": _image(each) for each in (8, 16, 36)},
}
COTS = {
    "100 x 100 pixels, 4 x 4 x 8": _autoencoder(100, 8),
    "200 x 200 pixels, 4 x 4 x 8": _autoencoder(200, 8),
    "200 x 200 pixels, 4 x 4 x 14": _autoencoder(200, 14),
    "200 x 200 pixels, 4 x 4 x 18": _autoencoder(200, 18, 32),
}
"""The second and the last are the paper's."""
