"""Groups whose gradients become one sum: a batch is one run of them, or several. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Neighbours in the sum's tree. No group is in two runs."""

    vector: str
    """What the mean gradient over the run is called."""
    groups: tuple[int, ...]
    """By their places in the sum."""
    samples: int = 0
    """Of all groups together, once they are known."""
    divisor: float | None = None
    """What makes a mean of their sum, if not the samples."""


def places(runs: Sequence[Run], groups: int) -> Sequence[int]:
    """The groups run by run; without runs so many groups from 0 on."""
    return [group for run in runs for group in run.groups] if runs else range(groups)
