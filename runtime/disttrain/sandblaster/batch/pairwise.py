"""A sum whose bits depend on the places of its terms, not on the order in which they came. Pure."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def pairwise(terms: Sequence[T], add: Callable[[T, T], T]) -> T:
    """Neighbours are added, then neighbours of those sums, and so on; there is at least one term.

    A term without a neighbour waits for the next round.
    """
    level = list(terms)
    while len(level) > 1:
        pairs = [add(level[place], level[place + 1]) for place in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]
