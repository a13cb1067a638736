"""What the vectors on the shards are called, and what a shard can be told to do with its part.

Each operation is done by every shard on its own range; what it answers are scalars. A program is
several of them, carried out one after the other. A vector that does not exist yet is made where it
is the target.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from disttrain.state import vector

PARAMETERS = vector.PARAMETERS
"""The point that was accepted last."""
GRADIENT = "gradient"
"""The gradient there."""
DIRECTION = "direction"
"""Where the line search goes from there."""
TRIAL = "trial"
"""The point whose loss and gradient are wanted."""
ARRIVED = "arrived"
"""The gradient at the trial point, once all portions are in."""
FETCHABLE = (TRIAL, GRADIENT, DIRECTION, ARRIVED)
"""What the placement names beside the parameters."""
BEFORE, MIDDLE, AFTER = "before", "middle", "after"
"""Gradients at the trial point over three runs of a batch that is smaller than the data: what it
shares with the batch before, what only it has, and what it shares with the next one."""
KEPT = "kept"
"""What `AFTER` was at the point that was accepted last."""
_OF_PAIR = re.compile(r"[sy][0-9]+")


def pair(slot: int) -> tuple[str, str]:
    """A pair of L-BFGS: how far an iteration went (s), how its gradient changed on the way (y)."""
    return f"s{slot}", f"y{slot}"


def is_of_pair(name: str) -> bool:
    """Whether a vector is of a pair, which stays as it is for as many iterations as there are."""
    return _OF_PAIR.fullmatch(name) is not None


Combination: TypeAlias = dict[str, float]
"""A sum of vectors, each times its factor; added in this order."""


class Reduction(StrEnum):
    """How the shards' scalars become one."""

    SUM = "sum"
    """Added in the order of the shards, so that the bits depend on their number alone."""
    MAXIMUM = "maximum"
    """The largest; not a number if one of them is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dots:
    """The inner products of one vector with several. Answers one scalar each."""

    kind: Literal["dots"] = "dots"
    vector: str
    others: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gram:
    """All inner products of some vectors, each pair once: row by row, up to the diagonal."""

    kind: Literal["gram"] = "gram"
    vectors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Extent:
    """How large a vector is. Answers the sum and the largest of its absolute values."""

    kind: Literal["extent"] = "extent"
    vector: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """vector = factor * vector."""

    kind: Literal["scale"] = "scale"
    vector: str
    factor: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """target = source."""

    kind: Literal["copy"] = "copy"
    source: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Swap:
    """Two vectors exchange their names; no element moves. One that is missing is made."""

    kind: Literal["swap"] = "swap"
    first: str
    second: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Combine:
    """target = the combination, in one pass; the target may be among its vectors."""

    kind: Literal["combine"] = "combine"
    target: str
    terms: Combination


Operation: TypeAlias = Annotated[
    Dots | Gram | Extent | Scale | Copy | Swap | Combine, Field(discriminator="kind")
]


def written_by(operation: Operation) -> tuple[str, ...]:
    match operation:
        case Scale():
            return (operation.vector,)
        case Copy() | Combine():
            return (operation.target,)
        case _:
            return ()


def reductions(operation: Operation) -> tuple[Reduction, ...]:
    match operation:
        case Dots():
            return (Reduction.SUM,) * len(operation.others)
        case Gram():
            rows = len(operation.vectors)
            return (Reduction.SUM,) * (rows * (rows + 1) // 2)
        case Extent():
            return (Reduction.SUM, Reduction.MAXIMUM)
        case _:
            return ()


def merged(
    operations: Sequence[Operation], answers: Sequence[Sequence[float]]
) -> tuple[float, ...]:
    """The scalars of a program, from the answers of all shards in the order of their indices."""
    wanted = [how for operation in operations for how in reductions(operation)]
    columns = zip(*answers, strict=True)
    return tuple(_reduced(how, column) for how, column in zip(wanted, columns, strict=True))


def _reduced(how: Reduction, values: Sequence[float]) -> float:
    if how is Reduction.SUM:
        return sum(values[1:], start=values[0])
    largest = values[0]
    for value in values[1:]:
        # A comparison with what is no number is false, so that it stays once it is there.
        largest = largest if largest >= value or largest != largest else value  # noqa: PLR0124 nan
    return largest
