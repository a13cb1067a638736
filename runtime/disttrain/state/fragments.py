"""Parts of the trained vector that are pushed and fetched in turn. Pure.

A fragment is the same elements whatever shards there are: so both ends find it from its number, and
it stays what it was when a job goes on with another number of shards.
"""

from functools import lru_cache
from typing import NamedTuple

from disttrain.state.placement import Range
from disttrain.state.vector import Vector
from disttrain.transport.header import BLOCK_ELEMENTS

LEAST_ELEMENTS = BLOCK_ELEMENTS
"""Of a fragment: no block of int8 lies in two of them."""
_STRIPE_ELEMENTS = 1 << 18
"""Of a long vector: each shard then has about as much of one fragment as of another."""
_LEAST_STRIPES = 16
"""Of a fragment, unless they are blocks: the last one of them may have no equal in the others."""
_REMEMBERED = 128


class Fragment(NamedTuple):
    """Every so many-th stripe of the trained vector."""

    number: int
    """From 0."""
    fragments: int
    """How many there are."""

    @property
    def on_the_wire(self) -> int:
        """What headers call it, unless it is the whole vector, which is 0."""
        return self.number + 1

    def runs(self, elements: int) -> tuple[Range, ...]:
        """Its stripes in a vector of so many elements."""
        return _runs(self, elements)

    def nbytes(self, vector: Vector, elements: int) -> int:
        """How much of a vector of so many elements it is on its way."""
        return sum(vector.place_of(run.first, run.count)[1] for run in self.runs(elements))


WHOLE = Fragment(0, 1)


def most(elements: int) -> int:
    """Into how many fragments a vector of so many elements may be divided."""
    return max(1, elements // LEAST_ELEMENTS)


@lru_cache(maxsize=_REMEMBERED)
def _runs(fragment: Fragment, elements: int) -> tuple[Range, ...]:
    if fragment.fragments == 1:
        return (Range(0, elements),)
    shortest = elements // (_LEAST_STRIPES * fragment.fragments)
    blocks = min(shortest, _STRIPE_ELEMENTS) // BLOCK_ELEMENTS
    stripe = BLOCK_ELEMENTS * max(1, blocks)
    begins = range(fragment.number * stripe, elements, fragment.fragments * stripe)
    return tuple(Range(first, min(first + stripe, elements)) for first in begins)
