"""Who holds which elements of which vector: one table, made by the coordinator alone. Pure.

Everybody else is told it, and looks ranges and holders up. It is journaled, and stands in every
checkpoint; a job that goes on with another number of holders gets a new table with a later epoch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from disttrain.state import factors
from disttrain.state.factors import Factors
from disttrain.state.layout import MOST_ELEMENTS, ModelLayout, trained
from disttrain.state.vector import FORMER_NAMES, Vector, VectorText

TRAINED = 1
"""The number of what is trained: tables begin with it."""
ALIGNMENT_BYTES = 64
MOST_VECTORS = 255
"""A header has one byte for the number of a vector."""
MOST_HOLDERS = 99_999

_Elements = Annotated[int, Field(ge=0, le=MOST_ELEMENTS)]


@dataclass(frozen=True, slots=True)
class Range:
    """Elements [first, end) of a vector."""

    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first


class Held(NamedTuple):
    """Elements [first, end) of one vector."""

    vector: Annotated[int, Field(ge=0, lt=MOST_VECTORS)]
    """Its place in the table's list of vectors."""
    first: _Elements
    end: _Elements


class HeldPart(NamedTuple):
    """Some elements of a wanted range, where one holder has them."""

    holder: int
    first: int
    """Counted in the holder's own range."""
    offset: int
    """Counted in the wanted range."""
    count: int  # type: ignore[assignment]  # Hides tuple.count, which no one asks of a part.


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """The table. One that comes from elsewhere is to be read through `require_sound`."""

    epoch: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Grows with each table of a job."""
    vectors: Annotated[tuple[VectorText, ...], Field(max_length=MOST_VECTORS)]
    holders: Annotated[tuple[tuple[Held, ...], ...], Field(max_length=MOST_HOLDERS)]
    """What each holder has, by its index; a range may be empty."""
    factors: tuple[Factors, ...] = ()
    """Of parameters that are trained with another rate or weight decay than the manifest's."""
    further_factors: Annotated[
        tuple[tuple[Factors, ...], ...], Field(exclude_if=lambda found: not any(found))
    ] = ()
    """The same in the second partition, and those behind it."""

    def number(self, vector: Vector) -> int:
        """What headers call a vector. Raises ValueError for one that is not in the table."""
        return self.vectors.index(vector.held) + 1

    def vector(self, number: int) -> Vector | None:
        """The vector that headers call so; None: there is none."""
        return self.vectors[number - 1] if 0 < number <= len(self.vectors) else None

    def ranges(self, holder: int) -> dict[Vector, Range]:
        """What one holder has, in the order of `vectors`."""
        return {
            self.vectors[held.vector]: Range(held.first, held.end)
            for held in sorted(self.holders[holder])
        }

    def holders_of(self, partition: int) -> tuple[int, ...]:
        """Those that have what is trained in a partition of the model: it speaks with them alone.

        A partition without one speaks with nobody.
        """
        return tuple(
            holder
            for holder, ranges in enumerate(self.holders)
            if any(
                self.vectors[held.vector].is_trained
                and self.vectors[held.vector].partition == partition
                for held in ranges
            )
        )

    def factors_in(self, partition: int) -> tuple[Factors, ...]:
        """Of the parameters that are trained in a partition."""
        of_others = self.further_factors[partition - 1 : partition] if partition else ()
        return self.factors if not partition else next(iter(of_others), ())

    def elements(self, vector: Vector) -> int:
        """Length of a vector; 0 if nobody holds any of it."""
        return max((held.end for _, held in self._holding(vector)), default=0)

    def parts(self, vector: Vector, wanted: Range) -> tuple[HeldPart, ...]:
        """Where the elements of a range are, in their order.

        Raises ValueError if somebody should have some of them and nobody does.
        """
        found = sorted(self._parts(vector, wanted), key=lambda part: part.offset)
        if sum(part.count for part in found) != wanted.count:
            message = f"nobody holds all of {vector} [{wanted.first}, {wanted.end})"
            raise ValueError(message)
        return tuple(found)

    def _parts(self, vector: Vector, wanted: Range) -> Iterator[HeldPart]:
        for holder, held in self._holding(vector):
            first, end = max(held.first, wanted.first), min(held.end, wanted.end)
            if first < end:
                yield HeldPart(holder, first - held.first, first - wanted.first, end - first)

    def _holding(self, vector: Vector) -> Iterator[tuple[int, Held]]:
        number = self.vectors.index(vector) if vector in self.vectors else None
        for holder, ranges in enumerate(self.holders):
            for held in ranges:
                if held.vector == number:
                    yield holder, held


def place(layout: ModelLayout, holders: int, kept: Sequence[str] = (), epoch: int = 0) -> Placement:
    """Every vector of a model over its holders: contiguous ranges, in the holders' order.

    The holders are divided among the partitions, so that each has vectors of one partition alone.
    `kept`: what the job's strategies keep beside the trained parameters. A range begins at a
    multiple of 64 bytes, hence in a cache line of its own; their sizes differ by at most that.
    """
    of_all = layout.lengths()
    partitions = layout.partitions
    if not (partitions == 1 or partitions <= holders):
        message = f"{partitions} partitions need as many holders, and there are {holders}"
        raise ValueError(message)
    lengths: dict[Vector, int] = {}
    of_holders: list[list[Held]] = [[] for _ in range(holders)]
    for partition in range(partitions):
        of_one = {vector: n for vector, n in of_all.items() if vector.partition == partition}
        # What is trained is always there, so that a push has a chunk for every holder.
        own = trained((*of_one, trained(of_all)._replace(partition=partition)))
        of_one = {own: 0} | of_one
        of_one |= {own.beside(name): of_one[own] for name in kept}
        first, end = (holders * each // partitions for each in (partition, partition + 1))
        for holder, ranges in enumerate(_divided(of_one, end - first, len(lengths)), first):
            of_holders[holder].extend(ranges)
        lengths |= of_one
    further = tuple(factors.of_layout(layout, each) for each in range(1, partitions))
    return Placement(
        epoch=epoch,
        vectors=tuple(lengths),
        holders=tuple(map(tuple, of_holders)),
        factors=factors.of_layout(layout),
        further_factors=further if any(further) else (),
    )


def place_as_formerly(layout: ModelLayout, holders: int) -> Placement:
    """The table of a run of before there was one: by it the numbers in its ledgers are read."""
    lengths = {vector: layout.elements(vector) for vector in FORMER_NAMES.values()}
    return Placement(vectors=tuple(lengths), holders=_divided(lengths, holders))


def _divided(
    lengths: Mapping[Vector, int], holders: int, first: int = 0
) -> tuple[tuple[Held, ...], ...]:
    """`first`: number of the first of these vectors in the table."""
    bounds = [_bounds(vector, elements, holders) for vector, elements in lengths.items()]
    ranges = [list(pairwise(each)) for each in bounds]
    return tuple(
        tuple(Held(number, *each[holder]) for number, each in enumerate(ranges, first))
        for holder in range(holders)
    )


def _bounds(vector: Vector, elements: int, holders: int) -> list[int]:
    unit = ALIGNMENT_BYTES // vector.element_bytes
    units = -(-elements // unit)
    return [
        *(min(elements, units * holder // holders * unit) for holder in range(holders)),
        elements,
    ]


def require_sound(placement: Placement) -> Placement:
    """The same table. Raises ValueError for one by which elements would be lost or held twice."""
    _require_held_once(placement)
    for table in (placement.factors, *placement.further_factors):
        mistake = factors.first_mistake(table)
        if mistake is not None:
            raise ValueError(mistake)
    return placement


def _require_held_once(placement: Placement) -> None:
    if len(set(placement.vectors)) < len(placement.vectors):
        message = "a vector is twice in the table"
        raise ValueError(message)
    held: list[list[Range]] = [[] for _ in placement.vectors]
    for holder, ranges in enumerate(placement.holders):
        for number, first, end in ranges:
            if number >= len(held):
                message = f"holder {holder} has vector {number} of {len(held)}"
                raise ValueError(message)
            held[number].append(Range(first, end))
        if len({part.vector for part in ranges}) < len(ranges):
            message = f"holder {holder} has two ranges of one vector"
            raise ValueError(message)
    for vector, found in zip(placement.vectors, held, strict=True):
        if covered(found) is None:
            message = f"{vector} is not held exactly once"
            raise ValueError(message)


SoundPlacement = Annotated[Placement, AfterValidator(require_sound)]
"""In a message or a manifest."""


def covered(ranges: Sequence[Range]) -> int | None:
    """The length that ranges cover without a gap or an overlap; None if they do not."""
    end = 0
    for part in sorted(ranges, key=lambda part: (part.first, part.end)):
        if part.first != end or part.end < end:
            return None
        end = part.end
    return end


def chunks(whole: Range, chunk_elements: int) -> Sequence[Range]:
    """Cut a range into pieces of `chunk_elements`, the last one shorter; none if it is empty."""
    return [
        Range(first, min(first + chunk_elements, whole.end))
        for first in range(whole.first, whole.end, chunk_elements)
    ]
