"""Whether a step's gradient may be used, and how far it is scaled down. Pure."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST_NORM = 1e18
"""From here on a norm counts as not finite: its square is near the largest float32."""

CHUNK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}
"""Of one dot product. CUDA refuses more than 2^31 elements, and on a CPU the sum is in single
precision: over 2^24 equal elements it is wrong by 1%."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check of one step's gradient says."""

    scale: float
    """Factor that clips the norm; 0 for a gradient that must not be used."""

    @property
    def finite(self) -> bool:
        """False: neither push nor step with this gradient."""
        return self.scale > 0


def squared_norm(gradient: Tensor) -> Tensor:
    """A flat vector's dot product with itself, in double precision, where the vector lies."""
    parts = torch.split(gradient, CHUNK_ELEMENTS[gradient.device.type])
    squares = [torch.dot(part, part) for part in parts]
    return torch.stack(squares).sum(dtype=torch.float64)


def check(squared_norm: float, loss: float, clip_norm: float | None) -> Verdict:
    """Judge a gradient by its dot product with itself and the loss it comes from."""
    if not (math.isfinite(loss) and 0 <= squared_norm < LARGEST_NORM**2):
        return Verdict(0.0)
    norm = math.sqrt(squared_norm)
    if clip_norm is None or norm <= clip_norm:
        return Verdict(1.0)
    return Verdict(clip_norm / norm)
