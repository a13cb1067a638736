"""A small loss whose samples are cut into groups, and what an undisturbed run of it gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from disttrain.sandblaster.batch.driver import Driver, DriverRules
from disttrain.sandblaster.batch.groups import BackupRules
from disttrain.sandblaster.descent import Descent, DescentRules
from disttrain.sandblaster.kernels import Array
from disttrain.sandblaster.lbfgs import Lbfgs
from disttrain.sandblaster.line_search.strong_wolfe import WolfeRules

GROUPS, DIMENSIONS, SHARDS = 7, 6, 2
RANGES = (slice(0, 4), slice(4, DIMENSIONS))

_RANDOM = np.random.default_rng(11)
_SCALES = np.exp(_RANDOM.uniform(-2, 2, (GROUPS, DIMENSIONS)))
_TARGETS = _RANDOM.standard_normal((GROUPS, DIMENSIONS))
START = np.full(DIMENSIONS, 2.0)


Point: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Computed:
    """Sums over the samples of a group."""

    loss_sum: float
    gradient: Point
    samples: int


def compute(group: int, point: Point) -> Computed:
    samples, away = group + 1, point - _TARGETS[group]
    curved = _SCALES[group] * away + away**3
    loss = float(np.sum(_SCALES[group] * away**2 / 2 + away**4 / 4))
    return Computed(samples * loss, samples * curved, samples)


def whole(parts: Sequence[Array]) -> Point:
    """A vector from its parts on all shards."""
    return np.concatenate(parts).astype(np.float64)


def driver() -> Driver:
    rules = DescentRules(search=WolfeRules(), change_tolerance=1e-5, exact_every=3)
    backup = BackupRules(start_when_remaining=3, most_attempts=3)
    return Driver(Descent(rules, Lbfgs(history=2)), DriverRules(groups=GROUPS, backup=backup))
