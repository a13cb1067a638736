"""A small loss whose samples are cut into groups, and what an undisturbed run of it gives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from disttrain.sandblaster.batch.batches import Batches
from disttrain.sandblaster.batch.driver import Driver, DriverRules
from disttrain.sandblaster.batch.groups import BackupRules
from disttrain.sandblaster.curvature import WeakPairs
from disttrain.sandblaster.descent import Descent, DescentRules
from disttrain.sandblaster.frame import Frame, State, Step, Waiting
from disttrain.sandblaster.kernels import Array
from disttrain.sandblaster.lbfgs import Lbfgs
from disttrain.sandblaster.line_search.armijo import ArmijoRules
from disttrain.sandblaster.line_search.strong_wolfe import WolfeRules
from disttrain.sandblaster.method import Answer
from disttrain.sandblaster.multi_batch import MultiBatch

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


class Kind(StrEnum):
    """Which method the job runs."""

    WHOLE = "whole"
    """On all groups at once, until the loss changes no more."""
    BATCHES = "batches"
    """On some of them at a time, for a few iterations."""


ITERATIONS = 6
"""Of a job with batches."""


class Limited:
    """A frame that ends when so many points were accepted and the next batch has met the last."""

    def __init__(self, inner: Frame) -> None:
        self._inner = inner

    def begin(self) -> Step:
        return self._inner.begin()

    def advance(self, state: State, answer: Answer) -> Step:
        step = self._inner.advance(state, answer)
        over = state.waiting is Waiting.BATCH and state.progress.iteration == ITERATIONS
        return replace(step, request=None) if over else step


def driver(kind: Kind = Kind.WHOLE) -> Driver:
    backup = BackupRules(start_when_remaining=3, most_attempts=3)
    if kind is Kind.WHOLE:
        rules = DescentRules(search=WolfeRules(), change_tolerance=1e-5, exact_every=3)
        return Driver(Descent(rules, Lbfgs(history=2)), DriverRules(groups=GROUPS, backup=backup))
    directions = Lbfgs(history=2, weak_pairs=WeakPairs.DAMP)
    frame = Limited(MultiBatch(DescentRules(search=ArmijoRules()), directions))
    batches = Batches(seed=1, groups=GROUPS, size=4, overlap=1)
    return Driver(frame, DriverRules(groups=GROUPS, backup=backup, batches=batches))
