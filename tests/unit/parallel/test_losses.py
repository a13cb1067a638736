"""Losses over outputs that are divided among partitions, beside those over all outputs."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders.divided import BOUNDS, GRIDS, far, gradient, whole_of
from builders.partitions import in_partitions
from disttrain.parallel import (
    Alone,
    Grid,
    Partitioned,
    cross_entropy,
    one_vs_all,
    partition,
)
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.ways import Way

SAMPLE = (3, 7, 9)
SAMPLES = 5
NO_CLASS = -100

Losses = tuple[Callable[[Any, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]


def logistic(logits: Tensor, labels: Tensor) -> Tensor:
    """Of each class; a sample without one is of none of them."""
    classes = torch.arange(logits.shape[1])
    targets = (labels[:, None] == classes).to(logits)
    return functional.binary_cross_entropy_with_logits(logits, targets)


SOFTMAX: Losses = (cross_entropy, functional.cross_entropy)
ONE_VS_ALL: Losses = (one_vs_all, logistic)


def a_model(classes: int, dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(11)
    stem = (nn.Conv2d(3, 2, 3, padding=1), nn.Tanh(), nn.Flatten())
    head = (nn.Linear(126, 8), nn.Tanh(), nn.Linear(8, classes))
    return nn.Sequential(*stem, *head).to(dtype)


def images(dtype: torch.dtype) -> Tensor:
    torch.manual_seed(12)
    return torch.randn(SAMPLES, *SAMPLE, dtype=dtype)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    ("losses", "classes", "labels", "overrides"),
    [
        (SOFTMAX, 7, [0, 6, 3, NO_CLASS, 2], {}),
        (SOFTMAX, 7, [0, 6, 3, 1, 2], {"5": "whole"}),
        (ONE_VS_ALL, 7, [0, 6, 3, NO_CLASS, 2], {"5": "whole"}),
        (SOFTMAX, 4099, [0, 4098, 2050, NO_CLASS, 1366], {}),
        (ONE_VS_ALL, 4099, [0, 4098, 2050, NO_CLASS, 1366], {}),
    ],
    ids=["softmax", "softmax whole", "logistic whole", "softmax thousands", "logistic thousands"],
)
def test_a_loss_over_divided_outputs_is_the_loss_over_all(
    losses: Losses,
    classes: int,
    labels: list[int],
    overrides: Mapping[str, Way],
    dtype: torch.dtype,
) -> None:
    ours, theirs = losses
    model, x, wanted_classes = a_model(classes, dtype), images(dtype), torch.tensor(labels)
    plain = copy.deepcopy(model)
    wanted = theirs(plain(x), wanted_classes)
    wanted.backward()  # type: ignore[no-untyped-call]

    def one(peers: Communicator) -> tuple[Tensor, Partitioned]:
        made = partition(copy.deepcopy(model), Grid(*grid), peers, SAMPLE, overrides)
        logits = made.divided(x)
        before = peers.traffic.messages
        loss = ours(logits, wanted_classes)
        assert peers.traffic.messages == before
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), made

    for grid in GRIDS:
        found = in_partitions(grid[0] * grid[1], one)

        assert all(far(loss, wanted.detach()) < BOUNDS[dtype] for loss, _ in found)
        gradients = whole_of(model, [made for _, made in found], gradient)
        for name, parameter in plain.named_parameters():
            assert far(gradients[name], gradient(parameter)) < BOUNDS[dtype], (grid, name)


@pytest.mark.parametrize("way", ["whole", "1x1"])
@pytest.mark.parametrize("losses", [SOFTMAX, ONE_VS_ALL], ids=["softmax", "logistic"])
def test_classes_may_be_channels_of_one_place(losses: Losses, way: Way) -> None:
    """As behind a pooling over the whole image."""
    ours, theirs = losses
    torch.manual_seed(13)
    pooled = nn.Sequential(nn.Conv2d(3, 6, 3), nn.AvgPool2d((5, 7)), nn.Flatten()).double()
    x, labels = images(torch.float64), torch.tensor([5, 0, NO_CLASS, 3, 3])
    plain = copy.deepcopy(pooled)
    wanted = theirs(plain(x), labels)
    wanted.backward()  # type: ignore[no-untyped-call]

    def one(peers: Communicator) -> tuple[Tensor, Partitioned]:
        made = partition(copy.deepcopy(pooled), Grid(1, 2), peers, SAMPLE, {"1": way})
        loss = ours(made.divided(x), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), made

    found = in_partitions(2, one)

    assert all(far(loss, wanted.detach()) < 1e-10 for loss, _ in found)
    gradients = whole_of(pooled, [made for _, made in found], gradient)
    for name, parameter in plain.named_parameters():
        assert far(gradients[name], gradient(parameter)) < 1e-10, name


def test_a_loss_wants_a_class_in_each_row_and_labels_that_are_there() -> None:
    x, labels = images(torch.float64), torch.randint(0, 6, (SAMPLES,))
    images_again = nn.Sequential(nn.Conv2d(3, 6, 3)).double()
    logits = partition(images_again, Grid(1, 1), Alone(), SAMPLE).divided(x)
    with pytest.raises(ValueError, match=r"must be \(samples, classes\), got \(5, 6, 5, 7\)"):
        cross_entropy(logits, labels)

    logits = partition(a_model(6, torch.float64), Grid(1, 1), Alone(), SAMPLE).divided(x)
    with pytest.raises(ValueError, match="must be below 6, got 6"):
        cross_entropy(logits, torch.full((SAMPLES,), 6))
