import math

import pytest
import torch
from torch import Tensor

from disttrain.replica import gradient_check


@pytest.mark.parametrize(
    ("squared_norm", "loss", "finite"),
    [
        (4.0, 1.0, True),
        (0.0, 1.0, True),
        (math.nan, 1.0, False),
        (math.inf, 1.0, False),
        (4.0, math.nan, False),
        (4.0, math.inf, False),
        (0.99e36, 1.0, True),
        (1e36, 1.0, False),
        (1.1e36, 1.0, False),
    ],
)
def test_a_gradient_is_finite_below_a_norm_of_1e18(
    squared_norm: float,
    loss: float,
    finite: bool,  # noqa: FBT001
) -> None:
    assert (gradient_check.check(squared_norm, loss, None) > 0) is finite


@pytest.mark.parametrize(
    ("norm", "clip_norm", "scale"),
    [(10.0, None, 1.0), (10.0, 5.0, 0.5), (5.0, 5.0, 1.0), (1.0, 5.0, 1.0), (0.0, 5.0, 1.0)],
)
def test_only_a_norm_above_the_limit_is_scaled(
    norm: float, clip_norm: float | None, scale: float
) -> None:
    assert gradient_check.check(norm**2, 1.0, clip_norm) == scale


def test_the_norm_of_a_long_vector_does_not_drift_with_its_length() -> None:
    gradient = torch.full(((1 << 24) + 3,), 0.1)

    found = float(gradient_check.squared_norm(gradient))

    assert found == pytest.approx(float(gradient[0].double() ** 2) * len(gradient), rel=1e-4)
    assert found != pytest.approx(float(torch.dot(gradient, gradient)), rel=1e-4)


def test_no_dot_product_is_longer_than_cuda_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = torch.tensor([3.0, 4.0, 12.0]).expand(1, 3).flatten()
    lengths: list[int] = []
    dot = torch.dot

    def counted(left: Tensor, right: Tensor) -> Tensor:
        lengths.append(len(left))
        return dot(left, right)

    monkeypatch.setattr(torch, "dot", counted)
    monkeypatch.setitem(gradient_check.CHUNK_ELEMENTS, "cpu", 2)

    assert float(gradient_check.squared_norm(gradient)) == 169.0
    assert lengths == [2, 1]
    assert float(gradient_check.squared_norm(torch.zeros(0))) == 0.0
