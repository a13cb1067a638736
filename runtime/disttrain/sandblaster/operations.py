"""What a shard can be told to do with its part of the named vectors.

Each operation is done by every shard on its own range; what it answers are scalars. An order is
several of them, carried out one after the other. A vector that does not exist yet is made where it
is the target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

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
    """The vectors whose elements an operation changes."""
    match operation:
        case Scale():
            return (operation.vector,)
        case Copy() | Combine():
            return (operation.target,)
        case _:
            return ()


def reductions(operation: Operation) -> tuple[Reduction, ...]:
    """How each scalar of an operation's answer is made of the shards'."""
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
    """The scalars of an order, from the answers of all shards in the order of their indices."""
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
