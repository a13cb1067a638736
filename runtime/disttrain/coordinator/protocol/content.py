"""What a replica tells of the content of its data: some examples of each split. Pure.

They tell other data from the job's own, so that a machine with other files does not train. Rounding
differs among processors, so numbers with a fraction are compared by sums, all else by a digest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from disttrain.coordinator.protocol.fields import Count, Strict

TOLERANCE = 1e-3
"""By how much sums may differ, as a part of the length: a decoder's rounding stays far below."""

Name = Annotated[str, Field(max_length=64)]
Sum = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Example(Strict):
    """One example, as it goes into a batch."""

    split: Name
    index: Count
    """In the split."""
    digest: Name
    """Of all shapes and types, and of all values but floating-point numbers."""
    length: Sum
    """Root of the sum of the squares of those numbers."""
    sum: Sum
    """Of those numbers, each with a weight between -1 and 1 by its place."""

    def __str__(self) -> str:
        return f"{self.digest} with length {self.length:.6g} and sum {self.sum:.6g}"


Content = Annotated[
    tuple[Example, ...], Field(max_length=256, exclude_if=lambda content: not content)
]
"""Not written if it is empty, as in journals of before."""


def first_difference(ours: Iterable[Example], theirs: Iterable[Example]) -> str:
    """The first example of both that is not the same in both; empty: there is none.

    What only one side has read says nothing: the other one may have had no time for it.
    """
    own = {(one.split, one.index): one for one in ours}
    for other in theirs:
        one = own.get((other.split, other.index))
        if one is not None and not _is_same(one, other):
            return f"{other.split} example {other.index} is {other} here, and {one} in the job"
    return ""


def _is_same(one: Example, other: Example) -> bool:
    most = TOLERANCE * max(one.length, other.length)
    return (
        one.digest == other.digest
        and abs(one.length - other.length) <= most
        and abs(one.sum - other.sum) <= most
    )
