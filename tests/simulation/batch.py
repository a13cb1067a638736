"""What batch methods minimise here, and how a job goes on it when nothing happens meanwhile."""

from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from builders import placements
from builders.sampled_jobs import BatchJob
from disttrain.coordinator.journal import batch_rules
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.sandblaster.batch.driver import Driver
from disttrain.state.placement import place

Point: TypeAlias = NDArray[np.float64]

SAMPLES, DIMENSIONS = 27, 20
PORTION, GROUP = 2, 2
"""Samples of a portion, and portions of a group: seven groups, the last of which is smaller."""
_RANDOM = np.random.default_rng(11)
_SCALES = np.exp(_RANDOM.uniform(-2, 2, (SAMPLES, DIMENSIONS)))
_TARGETS = _RANDOM.standard_normal((SAMPLES, DIMENSIONS))
START = np.full(DIMENSIONS, 2.0)


def loss(portion: int, point: Point) -> tuple[float, Point, int]:
    """Sums over the samples of a portion, of loss and gradient, and how many there are."""
    samples = slice(portion * PORTION, min((portion + 1) * PORTION, SAMPLES))
    scales, away = _SCALES[samples], point - _TARGETS[samples]
    value = float(np.sum(scales * away**2 / 2 + away**4 / 4))
    return value, np.sum(scales * away + away**3, axis=0), len(away)


class _Groups:
    """The same, group by group."""

    dimensions = DIMENSIONS

    def group(self, group: int, x: Point) -> tuple[float, Point, int]:
        value, gradient, samples = 0.0, np.zeros(DIMENSIONS), 0
        for portion in range(group * GROUP, min((group + 1) * GROUP, -(-SAMPLES // PORTION))):
            value_here, gradient_here, samples_here = loss(portion, x)
            value, samples = value + value_here, samples + samples_here
            gradient += gradient_here
        return value, gradient, samples


@lru_cache(maxsize=64)
def of_job(rules: Sandblaster, seed: int, shards: int, start: bytes) -> BatchJob:
    """The run of a manifest's method from a point."""
    groups = -(-SAMPLES // rules.group_samples)
    driver = batch_rules.driver(rules.model_copy(update={"warm_start": None}), groups, seed)
    return serial(driver, shards, np.frombuffer(start))


def serial(driver: Driver, shards: int = 2, start: Point = START) -> BatchJob:
    """What the method of a driver gives when only one thing happens at a time."""
    vector = placements.PARAMETERS_FLOAT64
    placed = place(placements.of_lengths({vector: DIMENSIONS}), shards)
    held = [placed.ranges(shard)[vector] for shard in range(shards)]
    cuts = [slice(part.first, part.end) for part in held]
    job = BatchJob(_Groups(), driver, shards, in_turn=True, start=start, cuts=cuts)
    job.run()
    # Each point that counts is another one, and the last is the result.
    assert not any(np.array_equal(one, other) for one, other in pairwise(job.points))
    assert np.array_equal(job.result, job.points[-1])
    return job
