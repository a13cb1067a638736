"""What the learning rate and the weight decay of single parameters are multiplied by. Pure.

They go by elements of the trained vector, since who holds a part of it knows no tensors.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from disttrain.state.layout import MOST_ELEMENTS, Factor, ModelLayout

_Elements = Annotated[int, Field(ge=0, le=MOST_ELEMENTS)]


class Factors(NamedTuple):
    """Of elements [first, end) of the trained vector."""

    first: _Elements
    end: _Elements
    learning_rate: Factor = 1.0
    weight_decay: Factor = 1.0

    @property
    def change_nothing(self) -> bool:
        return self.learning_rate == self.weight_decay == 1.0


def of_layout(layout: ModelLayout, partition: int = 0) -> tuple[Factors, ...]:
    """Those of one partition that change something; neighbours that are alike are one."""
    found: list[Factors] = []
    for spec in layout.tensors:
        one = Factors(spec.first, spec.first + spec.elements, spec.rate_factor, spec.decay_factor)
        is_of_this = spec.vector.is_trained and spec.vector.partition == partition
        if not is_of_this or one.change_nothing or one.first == one.end:
            continue
        if found and found[-1].end == one.first and found[-1][2:] == one[2:]:
            one = one._replace(first=found.pop().first)
        found.append(one)
    return tuple(found)


def within(table: Sequence[Factors], first: int, end: int) -> Iterator[Factors]:
    """Those of all elements of a range, in their order, also where they change nothing."""
    place = bisect_right(table, first, key=lambda each: each.end)
    while first < end:
        known = table[place] if place < len(table) else Factors(end, end)
        if known.first <= first:
            yield known._replace(first=first, end=min(known.end, end))
            first, place = known.end, place + 1
        else:
            yield Factors(first, min(known.first, end))
            first = known.first


def first_mistake(table: Iterable[Factors]) -> str | None:
    """A sentence about the first range that is empty, or begins before the end of another."""
    before = 0
    for each in table:
        if not before <= each.first < each.end:
            return f"factors of [{each.first}, {each.end}) stand behind those up to {before}"
        before = each.end
    return None
