"""Sets of whole numbers as sorted, disjoint, half-open intervals. Pure."""

from collections.abc import Sequence

Interval = tuple[int, int]
Intervals = tuple[Interval, ...]


def size(intervals: Sequence[Interval]) -> int:
    return sum(end - first for first, end in intervals)


def union(intervals: Sequence[Interval], first: int, end: int) -> Intervals:
    """The set with [first, end) added; neighbours are merged."""
    if first >= end:
        return tuple(intervals)
    before = [item for item in intervals if item[1] < first]
    after = [item for item in intervals if item[0] > end]
    met = intervals[len(before) : len(intervals) - len(after)]
    first = min([first, *(item[0] for item in met)])
    end = max([end, *(item[1] for item in met)])
    return (*before, (first, end), *after)


def without(intervals: Sequence[Interval], first: int, end: int) -> Intervals:
    """The set without [first, end)."""
    if first >= end:
        return tuple(intervals)
    pieces = [
        piece
        for low, high in intervals
        for piece in ((low, min(high, first)), (max(low, end), high))
    ]
    return tuple((low, high) for low, high in pieces if low < high)


def overlap(intervals: Sequence[Interval], first: int, end: int) -> int:
    """How many numbers of [first, end) the set holds."""
    return sum(max(0, min(high, end) - max(low, first)) for low, high in intervals)
