"""Samples are the same by their values, and never where these are not known."""

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from disttrain.task.same_samples import are_the_same

Pair = namedtuple("Pair", ["text", "label"])

MADE: list[Callable[[int], Any]] = [
    lambda n: n,
    float,
    str,
    lambda n: str(n).encode(),
    lambda n: torch.tensor([1, n]),
    lambda n: np.array([1.5, n]),
    np.float32,
    lambda n: {"text": b"a", "labels": [1, n]},
    lambda n: (torch.zeros(2), {"label": n}),
    lambda n: Pair("a", n),
    lambda n: [None] * n,
]


@pytest.mark.parametrize("make", MADE)
def test_samples_are_compared_by_their_values(make: Callable[[int], Any]) -> None:
    assert are_the_same(make(3), make(3))
    assert not are_the_same(make(3), make(4))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2), torch.zeros(1, 2)),
        (np.zeros(2), np.zeros(2, np.float32)),
        ({"a": 1}, {"b": 1}),
        ([1], (1,)),
        (float("nan"), float("nan")),
        (object(), object()),
        (np.array([object()]), np.array([object()])),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse()),
    ],
)
def test_what_differs_or_is_not_known_is_not_the_same(one: object, other: object) -> None:
    assert not are_the_same(one, other)
