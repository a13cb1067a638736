"""Single precision on its way in fewer bits: bfloat16, or int8 with a scale for each block.

Both sides keep float32; what is rounded, to nearest and ties to even, is what one push or one fetch
carries.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from disttrain.holder.values import bytes_of, tensor_of
from disttrain.state.placement import Range
from disttrain.transport.header import (
    BLOCK_BYTES,
    BLOCK_ELEMENTS,
    SCALE_BYTES,
    ElementType,
    Header,
    blocks_around,
)

_MARKED = torch.iinfo(torch.int16).min
"""The bits of -0.0."""
_LARGEST = 127
"""Of the whole numbers of a block."""
_SMALLEST = 1e-30
"""Scale; a block whose numbers are all smaller is rounded to 0. Its inverse is finite."""
_BLOCKS_AT_ONCE = 1 << 12
"""Half a million elements: what is made beside a vector is short."""


def narrow_gradient(gradient: Tensor, into: Tensor) -> None:
    """Round a gradient to bfloat16.

    The marks of parameters without one stay, and no other element gets one: a number that is too
    small for 16 bits becomes 0, which may be -0.0 by its rounding alone.
    """
    into.copy_(gradient)
    # On a GPU the question would wait for it.
    if into.is_cuda or (into.numel() and int(into.view(torch.int16).min()) == _MARKED):
        into.masked_fill_((into == 0) & (gradient != 0), 0.0)


class _Blocks(NamedTuple):
    """Some blocks of a vector that travels as int8."""

    first: int
    """Element."""
    scales: Tensor
    numbers: Tensor
    """One row for each block."""


def _blocks(memory: Tensor) -> Iterator[_Blocks]:
    """Views of a few at a time."""
    for number, some in enumerate(torch.split(memory.view(-1, BLOCK_BYTES), _BLOCKS_AT_ONCE)):
        scales = some[:, :SCALE_BYTES].view(torch.float32)
        numbers = some[:, SCALE_BYTES:].view(torch.int8)
        yield _Blocks(number * _BLOCKS_AT_ONCE * BLOCK_ELEMENTS, scales, numbers)


def quantise(values: Tensor, into: Tensor) -> None:
    """Round to int8, by each block's largest element. `into` has room for all blocks, in bytes."""
    for first, scales, numbers in _blocks(into):
        part = values[first : first + numbers.numel()]
        filled = torch.nn.functional.pad(part, (0, numbers.numel() - len(part)))
        rows = filled.view(-1, BLOCK_ELEMENTS)
        scale = rows.abs().amax(1, keepdim=True) / _LARGEST
        scale.masked_fill_(scale < _SMALLEST, 0.0)
        inverse = torch.where(scale > 0, 1 / scale, 0.0)
        scales.copy_(scale)
        numbers.copy_((rows * inverse).round_().clamp_(-_LARGEST, _LARGEST))


def _widen(blocks: _Blocks) -> Tensor:
    return (blocks.numbers * blocks.scales).flatten()


def widened(memory: Tensor, first: int, count: int) -> Tensor:
    """Elements of a vector, from the bytes of the blocks around them."""
    if not count:
        return torch.zeros(0)
    # A message may begin anywhere in memory, where a view as float32 could not.
    wide = torch.cat([_widen(blocks) for blocks in _blocks(memory.clone())])
    return wide[first % BLOCK_ELEMENTS :][:count]


class Rounding:
    """How a replica rounds what it pushes, where it is not pushed as it is."""

    element_type = ElementType.BFLOAT16
    scale = 1.0
    """What holders will multiply the next push by."""
    runs: Sequence[Range] | None = None
    """What of the next push is sent, in whole blocks of int8; None: all."""

    def round(self, gradient: Tensor, into: Tensor) -> None:
        """Write the rounded gradient to memory of its own."""
        narrow_gradient(gradient, into)


class ErrorFeedback(Rounding):
    """Adds to each difference what rounding took from those before; one push at a time.

    So the sum of what holders apply is that of all differences as they were scaled, but for the
    rest of the latest one.
    """

    def __init__(self, element_type: ElementType) -> None:
        self.element_type = element_type
        self.rest = torch.zeros(0)
        """What the next push is to make up for, as it is applied; as long as a difference, once
        there was one."""

    def round(self, gradient: Tensor, into: Tensor) -> None:
        """The gradient's own memory is written to, too."""
        if not len(self.rest):
            self.rest = torch.zeros_like(gradient)
        for run in self.runs or (Range(0, len(gradient)),):
            sent, rest = gradient[run.first : run.end], self.rest[run.first : run.end]
            offset, nbytes = blocks_around(run.first, run.count)
            is_plain = self.element_type is ElementType.BFLOAT16
            place = (run.first, run.end) if is_plain else (offset, offset + nbytes)
            self._round(sent, rest, into[slice(*place)])

    def _round(self, sent: Tensor, rest: Tensor, into: Tensor) -> None:
        sent.add_(rest, alpha=1.0 / self.scale)
        rest.copy_(sent)
        if self.element_type is ElementType.BFLOAT16:
            rest.sub_(into.copy_(sent))
        else:
            quantise(sent, into)
            for blocks in _blocks(into):
                part = rest[blocks.first : blocks.first + blocks.numbers.numel()]
                part.sub_(_widen(blocks)[: len(part)])
        rest.mul_(self.scale)


class Narrowing:
    """Memory for one chunk on its way into a shard, and one on its way out."""

    def __init__(self) -> None:
        self._wide = torch.zeros(0)
        self._narrow = torch.zeros(0, dtype=torch.bfloat16)

    def received(self, header: Header, payload: memoryview) -> Tensor:
        """The elements of a rounded push in single precision; until the next call."""
        sent = tensor_of(payload, ElementType(header.element_type))
        if header.element_type == ElementType.INT8:
            return widened(sent, header.first, header.count)
        if len(self._wide) < len(sent):
            self._wide = torch.zeros(len(sent))
        return self._wide[: len(sent)].copy_(sent)

    def sent(self, payload: memoryview) -> memoryview:
        """The same elements of single precision, rounded to bfloat16; until the next call."""
        values = tensor_of(payload, ElementType.FLOAT32)
        if len(self._narrow) < len(values):
            self._narrow = torch.zeros(len(values), dtype=torch.bfloat16)
        return bytes_of(self._narrow[: len(values)].copy_(values))
