"""Which samples a portion holds, and in which order. Pure: the same everywhere from the seed.

The data is cut once, from the seed's permutation, so that a replica can keep its portions over the
epochs; the order of the portions, and the order inside each, are drawn anew for every epoch. Data
that is read in order is cut into neighbours, and only the order of the portions is drawn.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class _Stream(IntEnum):
    """Independent random streams of one seed."""

    CUT = 0
    ORDER = 1
    INSIDE = 2


def portion_count(samples: int, portion_size: int) -> int:
    """Number of portions; the last one may be short."""
    return -(-samples // portion_size)


def portion_samples(samples: int, portion_size: int, portion: int) -> int:
    return min(samples - portion * portion_size, portion_size)


def portion_indices(
    seed: int, samples: int, portion_size: int, portion: int, epoch: int
) -> Indices:
    """The sample indices of a portion in the order of this epoch; int64, of `portion_samples`."""
    first = portion * portion_size
    cut = _cut(seed, samples)[first : first + portion_size].astype(np.int64)
    return _generator(seed, _Stream.INSIDE, epoch, portion).permutation(cut)


def neighbours(samples: int, portion_size: int, portion: int) -> Indices:
    """The same of data that is read in order: neighbours, in the same order in every epoch."""
    first = portion * portion_size
    return np.arange(first, first + portion_samples(samples, portion_size, portion), dtype=np.int64)


def portions_of(
    seed: int, samples: int, portion_size: int, *, in_order: bool
) -> Callable[[int, int], Indices]:
    """The samples of a portion in an epoch; `in_order`: of data that is read in order."""
    if in_order:
        return lambda portion, _epoch: neighbours(samples, portion_size, portion)
    return partial(portion_indices, seed, samples, portion_size)


def portion_order(seed: int, portions: int, epoch: int) -> list[int]:
    order: list[int] = _generator(seed, _Stream.ORDER, epoch).permutation(portions).tolist()
    return order


def default_portion_size(samples: int, batch_size: int, replicas: int) -> int:
    """A multiple of the batch: about eight portions per replica and epoch, of 4 to 64 batches."""
    batches = samples // (8 * max(replicas, 1) * batch_size)
    return batch_size * min(max(batches, 4), 64)


@lru_cache(maxsize=1)
def _cut(seed: int, samples: int) -> NDArray[np.signedinteger]:
    """Four bytes per sample up to 2^31 of them, which each replica keeps; else eight."""
    small = samples - 1 <= np.iinfo(np.int32).max
    kind: np.dtype[np.signedinteger] = np.dtype(np.int32 if small else np.int64)
    whole = np.arange(samples, dtype=kind)
    _generator(seed, _Stream.CUT).shuffle(whole)
    whole.flags.writeable = False
    return whole


def _generator(seed: int, stream: _Stream, *which: int) -> np.random.Generator:
    return np.random.default_rng([seed, stream, *which])
