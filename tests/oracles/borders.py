"""What has to cross between the partitions of a model in a step, by which places look at which.

It knows of kernels, steps and borders, and of none of the product's windows and plans: each place
of an output names the places of the input that it looks at, one by one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from disttrain.parallel import LocalContrastNorm2d, LocallyConnected2d

Window = tuple[range, range]
"""Rows and columns."""
_SAME_PLACES = (nn.Tanh, nn.ReLU, nn.Flatten)
_SLIDING = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, LocallyConnected2d)


@dataclass
class Sent:
    """By one partition, in forward and backward."""

    messages: int = 0
    elements: int = 0

    def add(self, elements: int) -> None:
        if elements:
            self.messages += 1
            self.elements += elements


def step(
    model: nn.Sequential,
    x: Tensor,
    grid: tuple[int, int],
    own_grids: Mapping[str, tuple[int, int]] | None = None,
) -> list[Sent]:
    """Of each partition. All have the samples; the first layer has parameters, and all the output.

    `own_grids`: of layers that are divided over the first partitions in another way.

    Each needs what its part of a layer's output looks at and others have: one message from each
    of them. In backward the gradients go the same way back.
    """
    sent = [Sent() for _ in range(grid[0] * grid[1])]
    owned: list[Window] = []
    channels, size = 0, (0, 0)
    for name, layer in model.named_children():
        y = layer(x)
        if isinstance(layer, _SAME_PLACES):
            x = y
            continue
        windows = _divided(layer, y, (own_grids or {}).get(name, grid))
        windows += [(range(0), range(0))] * (len(sent) - len(windows))
        if owned:
            numbers = len(y) * channels
            for source, to, elements in _crossing(owned, _needed(layer, windows, size), numbers):
                sent[source].add(elements)
                sent[to].add(elements)
        owned, x = windows, y
        channels, size = (y.shape[1], y.shape[2:]) if y.dim() == 4 else (1, (y.shape[1], 1))
    everything = [_whole(size)] * len(sent)
    for source, _, elements in _crossing(owned, everything, len(x) * channels):
        sent[source].add(elements)
    return sent


def _whole(size: Sequence[int]) -> Window:
    return range(size[0]), range(size[1])


def _crossing(
    owned: list[Window], needed: list[Window], numbers: int
) -> Iterable[tuple[int, int, int]]:
    """From whom to whom, and how many numbers: so many of each place."""
    for source, (rows, columns) in enumerate(owned):
        for to, (down, right) in enumerate(needed):
            if source != to:
                yield source, to, numbers * _common(rows, down) * _common(columns, right)


def _common(one: range, other: range) -> int:
    return len(set(one) & set(other))


def _divided(layer: nn.Module, y: Tensor, grid: tuple[int, int]) -> list[Window]:
    """A layer's output, evenly: a Linear's by features, that of blocks in whole ones."""
    if isinstance(layer, nn.Linear):
        return [(part, range(1)) for part in _parts(y.shape[1], grid[0] * grid[1], 1)]
    unit = layer.block if isinstance(layer, LocallyConnected2d) else (1, 1)
    down, right = (_parts(y.shape[2 + each], grid[each], unit[each]) for each in range(2))
    return [(rows, columns) for rows in down for columns in right]


def _parts(length: int, parts: int, unit: int) -> list[range]:
    found = np.array_split(np.arange(length).reshape(-1, unit), parts)
    return [range(int(each.min()), int(each.max()) + 1) for each in found]


def _needed(layer: nn.Module, windows: list[Window], size: Sequence[int]) -> list[Window]:
    """The smallest rectangle with all that each window looks at."""
    if isinstance(layer, nn.Linear):
        return [_whole(size)] * len(windows)
    return [
        (_looked_at(layer, rows, 0, size[0]), _looked_at(layer, columns, 1, size[1]))
        for rows, columns in windows
    ]


def _looked_at(layer: nn.Module, window: range, way: int, length: int) -> range:
    all_of_them = {
        place for one in window for place in _places(layer, one, way) if 0 <= place < length
    }
    return range(min(all_of_them), max(all_of_them) + 1) if all_of_them else range(0)


def _places(layer: nn.Module, one: int, way: int) -> Iterable[int]:
    """Rows or columns of the input that one of the output looks at."""
    if isinstance(layer, LocalContrastNorm2d):
        # Neighbours, whose own means are taken off before they are squared.
        half = layer.kernel_size[way] // 2
        return (one + near + far for near in _around(half) for far in _around(half))
    assert isinstance(layer, _SLIDING)
    kernel, stride, padding, apart, block = (
        _both(getattr(layer, name, 1))[way]
        for name in ("kernel_size", "stride", "padding", "dilation", "block")
    )
    return (one // block * stride - padding + tap * apart for tap in range(kernel))


def _around(half: int) -> range:
    return range(-half, half + 1)


def _both(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value
