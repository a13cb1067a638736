"""Dropout whose mask is the same however a layer is divided."""

import torch
from torch import Tensor, nn

_MIX = (-4658895280553007687, -7723592293110705685)
"""Of splitmix64 (Steele, Lea and Flood 2014), as signed numbers."""
_GOLDEN = -7046029254386353131
_BITS = 24


class HashDropout(nn.Module):
    """Dropout by a hash of seed, step, layer, sample and place, instead of a generator's state.

    So each partition finds the mask of its own part. A step is a forward pass in training.
    """

    def __init__(self, p: float = 0.5, *, seed: int = 0, layer: int = 0) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            message = f"p: must be at least 0 and below 1, got {p}"
            raise ValueError(message)
        self.p, self.seed, self.layer = p, seed, layer
        self.step = 0
        """The next one. It is in no state_dict: who goes on with a run sets it, or begins with the
        masks of the first steps again."""
        self.first_sample = 0
        """Of the next call, where a batch comes in slices: what is not its first goes on with the
        step of the call before."""

    def forward(self, x: Tensor) -> Tensor:
        """Undivided."""
        places = torch.arange(x[0].numel(), device=x.device).view(x.shape[1:])
        return self.forward_places(x, places)

    def forward_places(self, x: Tensor, places: Tensor) -> Tensor:
        """`places`: of each element of a sample, its number in the whole sample."""
        if not self.training or self.p == 0.0:
            return x
        if self.first_sample == 0:
            self.step += 1
        kept = self._kept(len(x), places, self.step - 1)
        return x * kept / (1.0 - self.p)

    def _kept(self, samples: int, places: Tensor, step: int) -> Tensor:
        """Which elements stay, as (samples, *places)."""
        key = _hash(torch.tensor(self.seed, device=places.device))
        for part in (step, self.layer):
            key = _hash(key + part)
        first, end = self.first_sample, self.first_sample + samples
        each = _hash(key + torch.arange(first, end, device=places.device))
        mixed = _hash(each.view(-1, *(1 for _ in places.shape)) + _hash(places))
        chance = (mixed >> (64 - _BITS)) & ((1 << _BITS) - 1)
        return chance >= round(self.p * (1 << _BITS))


def _hash(x: Tensor) -> Tensor:
    """64 bits to 64 bits; numbers wrap around."""
    x = x + _GOLDEN
    x = (x ^ _shifted(x, 30)) * _MIX[0]
    x = (x ^ _shifted(x, 27)) * _MIX[1]
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, with zeros coming in."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
