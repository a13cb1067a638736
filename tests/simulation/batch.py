"""What batch methods minimise here, and how a job goes on it when nothing happens meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from builders import placements
from disttrain.coordinator.journal import batch_rules
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.sandblaster.batch.driver import Course, Driver, Stage
from disttrain.sandblaster.batch.groups import Attempt, Result, Worker
from disttrain.sandblaster.batch.shard import BatchShard
from disttrain.sandblaster.batch.staging import Chunk, Layout
from disttrain.sandblaster.names import PARAMETERS, TRIAL
from disttrain.state.placement import Range, place

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


@dataclass(slots=True)
class Serial:
    """What a job gives of which only one thing happens at a time."""

    course: Course
    points: list[bytes] = field(default_factory=list)
    """Parameters, one accepted point after another: the last one is the result."""


@lru_cache(maxsize=64)
def of_job(rules: Sandblaster, seed: int, shards: int, start: bytes) -> Serial:
    """The run of a manifest's method from a point."""
    groups = -(-SAMPLES // rules.group_samples)
    driver = batch_rules.driver(rules.model_copy(update={"warm_start": None}), groups, seed)
    return serial(driver, shards, np.frombuffer(start))


def serial(driver: Driver, shards: int = 2, start: Point = START) -> Serial:
    """Of the method of a driver."""
    parts = ranges(shards)
    found = Serial(driver.begin(1, (1,) * shards), [start.tobytes()])
    held = [_shard(start[part.first : part.end]) for part in parts]
    while found.course.stage is not Stage.DONE:
        order = found.course.order
        for index, shard in enumerate(held):
            driver.answered(found.course, index, shard.carry_out(order))
        point = _whole(held, PARAMETERS).tobytes()
        if point != found.points[-1]:
            found.points.append(point)
        while attempt := driver.request_group(found.course, Worker(0, 1)):
            _work(driver, found.course, held, attempt)
    return found


def ranges(shards: int) -> list[Range]:
    """Where each shard's part of the parameters lies."""
    vector = placements.PARAMETERS_FLOAT64
    placed = place(placements.of_lengths({vector: DIMENSIONS}), shards)
    return [placed.ranges(shard)[vector] for shard in range(shards)]


def _work(driver: Driver, course: Course, held: Sequence[BatchShard], attempt: Attempt) -> None:
    point, gradient = _whole(held, TRIAL), np.zeros(DIMENSIONS)
    value, samples = 0.0, 0
    first = attempt.group * GROUP
    for portion in range(first, min(first + GROUP, -(-SAMPLES // PORTION))):
        value_here, gradient_here, samples_here = loss(portion, point)
        value, samples = value + value_here, samples + samples_here
        gradient += gradient_here
    number = course.evaluation.number
    for shard, part in zip(held, ranges(len(held)), strict=True):
        chunk = Chunk(
            sender=attempt.worker,
            evaluation=number,
            group=attempt.group,
            attempt=attempt.number,
            number=0,
        )
        shard.staging.stage(chunk, gradient[part.first : part.end])
    result = Result(
        attempt=attempt.number,
        evaluation=number,
        loss_sum=value,
        samples=samples,
        shards=course.evaluation.shards,
    )
    driver.staged(course, attempt.worker, result)


def _shard(start: Point) -> BatchShard:
    layout = Layout(elements=len(start), chunk_elements=len(start), element_type=np.float64)
    made = BatchShard(layout, 1 << 20)
    made.vectors.make(PARAMETERS)[:] = start
    return made


def _whole(held: Sequence[BatchShard], name: str) -> Point:
    return np.concatenate([shard.vectors[name] for shard in held]).astype(np.float64)
