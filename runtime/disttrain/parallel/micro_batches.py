"""In which order layers that lie whole on several partitions take the slices of a batch. Pure.

Consecutive layers on one partition are a stage. A slice goes through all stages, and while one
stage has it, those before have later slices (Huang et al. 2019). First the stages fill, at the end
they drain: of S equally long stages with M slices, each is idle S - 1 of M + S - 1 times.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from disttrain.parallel.windows import Span, split


class Stage(NamedTuple):
    """Layers in a row on one partition."""

    place: int
    first: int
    """Number of its first layer; `end` is behind its last one."""
    end: int


class Turn(NamedTuple):
    """What a partition computes without waiting: one stage, of one slice of the batch."""

    stage: int
    slice: int


def stages(places: Iterable[int]) -> list[Stage]:
    """Of the partitions of layers in a row."""
    found: list[Stage] = []
    for place, layers in itertools.groupby(enumerate(places), key=lambda each: each[1]):
        numbers = [number for number, _ in layers]
        found.append(Stage(place, numbers[0], numbers[-1] + 1))
    return found


def slices(samples: int, wanted: int) -> list[Span]:
    """So many slices of a batch, or one for each sample. Sizes differ by one at most."""
    return split(samples, max(1, min(samples, wanted)))


def of_forward(stages: int, slices: int) -> list[Turn]:
    """All turns. Those of a partition, in this order, wait only for earlier ones of others.

    So messages between two partitions come in the order in which they are sent, too. Backward
    takes them from the last to the first.
    """
    every = [Turn(stage, each) for stage in range(stages) for each in range(slices)]
    return sorted(every, key=in_forward)


def in_forward(turn: Turn) -> tuple[int, int]:
    """By which forward takes them, and backward from the last to the first."""
    return turn.stage + turn.slice, turn.stage


def of_place(turns: Sequence[Turn], stages: Sequence[Stage], place: int) -> list[Turn]:
    """Those of one partition."""
    return [turn for turn in turns if stages[turn.stage].place == place]
