import math

import pytest

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
    assert gradient_check.check(squared_norm, loss, None).finite is finite


@pytest.mark.parametrize(
    ("norm", "clip_norm", "scale"),
    [(10.0, None, 1.0), (10.0, 5.0, 0.5), (5.0, 5.0, 1.0), (1.0, 5.0, 1.0), (0.0, 5.0, 1.0)],
)
def test_only_a_norm_above_the_limit_is_scaled(
    norm: float, clip_norm: float | None, scale: float
) -> None:
    assert gradient_check.check(norm**2, 1.0, clip_norm).scale == scale
