"""How a push says that a parameter has no gradient: its elements are -0.0.

A gradient that backward added up never holds that, since 0 + -0.0 is 0. Sums of marks, and marks
times a factor above 0, are marks; a mark and a gradient add up to the gradient.
"""

import torch
from torch import Tensor

from disttrain.state.placement import Range

MARK = -0.0
MOST_RUNS = 4096
"""Of elements with a gradient in one chunk: more than a model has parameters there."""

_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def present(gradient: Tensor) -> list[Range]:
    """The runs of elements that have a gradient. Raises ValueError for more than `MOST_RUNS`."""
    bits = gradient.view(_BITS[gradient.dtype])
    mark = torch.iinfo(bits.dtype).min
    if int(bits.min()) != mark:
        return [Range(0, len(bits))]
    has_gradient = torch.nn.functional.pad(bits != mark, (1, 1))
    bounds = torch.nonzero(has_gradient[1:] != has_gradient[:-1]).flatten()
    if len(bounds) > 2 * MOST_RUNS:
        message = f"{len(bounds) // 2} runs of elements with a gradient; at most {MOST_RUNS} may be"
        raise ValueError(message)
    return [Range(first, end) for first, end in bounds.view(-1, 2).tolist()]
