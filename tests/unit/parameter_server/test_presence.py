"""Elements without a gradient in a push."""

import pytest
import torch
from torch import Tensor

from disttrain.parameter_server import presence
from disttrain.parameter_server.presence import MARK, MOST_RUNS
from disttrain.state.placement import Range


def marked(*runs: slice, elements: int = 20, dtype: torch.dtype = torch.float32) -> Tensor:
    gradient = torch.zeros(elements, dtype=dtype)
    gradient[1::2] = -1.5
    for run in runs:
        gradient[run] = MARK
    return gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("runs", "wanted"),
    [
        ((), [(0, 20)]),
        ((slice(0, 20),), []),
        ((slice(0, 3),), [(3, 20)]),
        ((slice(4, 7), slice(19, 20)), [(0, 4), (7, 19)]),
    ],
)
def test_only_marks_are_without_a_gradient(
    runs: tuple[slice, ...], wanted: list[tuple[int, int]], dtype: torch.dtype
) -> None:
    assert presence.present(marked(*runs, dtype=dtype)) == [Range(*run) for run in wanted]


def test_sums_and_scaling_keep_what_a_mark_means() -> None:
    mark, gradient = marked(slice(0, 20)), marked()

    assert presence.present(mark.clone().add_(mark, alpha=3.0).mul_(0.25)) == []
    assert presence.present(mark.clone().add_(gradient)) == [Range(0, 20)]
    assert presence.present(gradient.clone().add_(mark)) == [Range(0, 20)]


def test_backward_writes_no_mark() -> None:
    weight = torch.nn.Parameter(torch.ones(20))
    weight.grad = torch.zeros(20)
    (weight * torch.full((20,), MARK)).sum().backward()  # type: ignore[no-untyped-call]

    assert presence.present(weight.grad) == [Range(0, 20)]


def test_more_runs_than_a_model_has_are_refused() -> None:
    bits = torch.tensor([1.0, MARK]).repeat(MOST_RUNS + 1)

    assert len(presence.present(bits[2:])) == MOST_RUNS
    with pytest.raises(ValueError, match=f"{MOST_RUNS + 1} runs of elements with a gradient"):
        presence.present(bits)
