"""What is told of the content of the data: the same for the same data, something else for other."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from disttrain.coordinator.protocol.content import Example, first_difference
from disttrain.replica import content
from disttrain.replica.task_calls import Examples
from disttrain.task.sources import SourcesReader
from disttrain.task.task import Split
from tasks.counting import NumberedSources

COUNT = 1000
SEED = 3


class Made(Dataset[Any]):
    """Sample i is what a function makes of i."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make, self.asked = make, 0

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return self.make(index)


def told(make: Callable[[int], Any], seed: int = SEED) -> tuple[Example, ...]:
    return content.sketch(Split.TRAIN, Examples(dataset=Made(make), count=COUNT), seed)


def picture(index: int) -> torch.Tensor:
    return torch.full((3, 4), float(index))


def test_machines_with_the_same_seed_read_the_same_examples() -> None:
    assert told(picture) == told(picture)
    assert len(told(picture)) > content.EXAMPLES * 0.9
    assert told(picture) != told(picture, seed=SEED + 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (picture, lambda i: picture(i) * 1.01),
        (picture, lambda i: picture(i).reshape(4, 3)),
        (picture, lambda i: picture(i).double()),
        (lambda i: torch.arange(5.0) + i, lambda i: (torch.arange(5.0) + i).flip(0)),
        (lambda i: (picture(i), i % 10), lambda i: (picture(i), (i + 1) % 10)),
        (lambda i: {"text": f"a{i}"}, lambda i: {"text": f"b{i}"}),
        (lambda i: {"text": i}, lambda i: {"words": i}),
        (lambda _: b"ab", lambda _: b"cd"),
        (lambda i: np.array([i % 7]), lambda i: np.array([i % 5])),
        (lambda _: torch.ones(2, dtype=torch.bfloat16), lambda _: torch.ones(2)),
        (lambda i: torch.tensor([complex(i, 1)]), lambda i: torch.tensor([complex(i, -9)])),
    ],
)
def test_other_content_is_found(one: Callable[[int], Any], other: Callable[[int], Any]) -> None:
    assert not first_difference(told(one), told(one))
    assert "in the job" in first_difference(told(one), told(other))


def test_another_rounding_is_no_other_content() -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(COUNT, 100, generator=generator)

    assert not first_difference(told(lambda i: values[i]), told(lambda i: values[i] * (1 + 1e-6)))


def test_values_that_are_not_finite_can_be_told() -> None:
    assert told(lambda _: torch.tensor([float("nan"), float("inf"), 1.0]))[0].length == 1.0


def test_examples_that_draw_random_numbers_are_left_out() -> None:
    assert told(lambda _: random.random()) == ()


def test_objects_without_numbers_are_compared_by_their_type() -> None:
    assert told(lambda _: object()) == told(lambda _: object())


def test_of_sources_the_first_sample_of_some_is_read() -> None:
    counts: Sequence[int] = (0, 50, 0, 30)
    sources = SourcesReader(NumberedSources(counts), "data")
    examples = Examples(dataset=sources, count=len(sources), sources=sources.digest)

    assert {one.index for one in content.sketch(Split.TRAIN, examples, SEED)} == {0, 50}


def test_slow_data_is_read_no_longer_than_the_limit() -> None:
    data = Made(picture)

    found = content.sketch(
        Split.TRAIN, Examples(dataset=data, count=COUNT), SEED, lambda: float(data.asked * 3)
    )

    assert 1 < len(found) < 5
