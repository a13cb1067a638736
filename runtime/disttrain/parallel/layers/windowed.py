"""What a layer must tell so that its output can be divided by rows and columns.

A layer of one's own becomes divisible by extending `Windowed`: it says which input an output
window needs, and computes on a window. Nothing else has to know of it.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from disttrain.parallel.array import padded
from disttrain.parallel.late import Product
from disttrain.parallel.windows import Box, Span, whole


@dataclass(frozen=True, slots=True)
class View:
    """Which part of the whole a call computes."""

    output: Box
    input: Box
    """What `forward_window` gets. It may reach beyond the array, where it is padding."""
    height: int
    """Of the whole input."""
    width: int


class Windowed(nn.Module):
    """A layer from (samples, channels, height, width) to the same, which sees only windows."""

    padding_value: float = 0.0
    """Of what lies beyond the array."""
    unit: tuple[int, int] = (1, 1)
    """Output windows begin at multiples of this."""
    product: Product | None = None
    """What `forward_window` does with `weight` and `bias`, if that is all it does."""

    @abstractmethod
    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Of the whole output, by the size of the whole input."""

    @abstractmethod
    def input_window(self, output: Box) -> Box:
        """What an output window needs; it may reach beyond the array."""

    @abstractmethod
    def forward_window(self, x: Tensor, view: View) -> Tensor:
        """The output window, of the padded input window."""

    def output_channels(self, channels: int) -> int:
        return channels

    def part(self, output: Box) -> "Windowed":
        """The same layer, with the parameters of this output window alone.

        Of a layer whose parameters are tied, as those of a convolution, it is the layer itself. A
        window may be `NOTHING`, which has no elements of them.
        """
        del output
        return self

    def place_of(self, name: str, output: Box) -> tuple[slice, ...]:
        """Where a parameter of `part` lies in the undivided layer's."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Undivided."""
        height, width = x.shape[2:]
        output = whole(*self.output_size(height, width))
        view = View(output, self.input_window(output), height, width)
        return self.forward_window(
            padded(x, whole(height, width), view.input, self.padding_value), view
        )


@dataclass(frozen=True, slots=True)
class Sliding:
    """The arithmetic of a kernel that slides along one dimension."""

    kernel: int
    stride: int
    before: int
    """Padding."""
    after: int
    dilation: int = 1
    ceil: bool = False

    def length(self, length: int) -> int:
        """Of the output, as torch computes it."""
        room = length + self.before + self.after - self.dilation * (self.kernel - 1) - 1
        found = (-(-room // self.stride) if self.ceil else room // self.stride) + 1
        if self.ceil and (found - 1) * self.stride >= length + self.before:
            found -= 1
        return found

    def needs(self, output: Span) -> Span:
        if not output.length:
            return Span(0, 0)
        first = output.first * self.stride - self.before
        last = (output.end - 1) * self.stride - self.before
        return Span(first, last + self.dilation * (self.kernel - 1) + 1)

    def real(self, output: Span, length: int, *, padding_counts: bool) -> Tensor:
        """Of how many elements each output is, as torch counts for an average."""
        starts = torch.arange(output.first, output.end) * self.stride - self.before
        if padding_counts:
            ends = (starts + self.kernel).clamp(max=length + self.after)
            return ends - starts
        return (starts + self.kernel).clamp(max=length) - starts.clamp(min=0)


def pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    """Torch's way to give one number for both dimensions."""
    if isinstance(value, int):
        return value, value
    rows, columns = value
    return rows, columns


def sliding(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
    *,
    ceil: bool = False,
) -> tuple[Sliding, Sliding]:
    """Over rows and columns, with as much padding after them as before."""
    rows, columns = (
        Sliding(kernel[each], stride[each], padding[each], padding[each], dilation[each], ceil)
        for each in range(2)
    )
    return rows, columns
