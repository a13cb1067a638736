"""Intervals against sets of numbers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from disttrain.coordinator.leases import intervals

Pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def _built(pairs: list[tuple[int, int]]) -> tuple[intervals.Intervals, set[int]]:
    built: intervals.Intervals = ()
    numbers: set[int] = set()
    for first, end in pairs:
        built = intervals.union(built, first, end)
        numbers |= set(range(first, end))
    return built, numbers


def _numbers(found: intervals.Intervals) -> set[int]:
    return {number for first, end in found for number in range(first, end)}


@settings(deadline=None)
@given(pairs=Pairs, first=st.integers(0, 30), end=st.integers(0, 30))
def test_they_behave_like_sets(pairs: list[tuple[int, int]], first: int, end: int) -> None:
    built, numbers = _built(pairs)
    other = set(range(first, end))
    assert _numbers(built) == numbers
    assert intervals.size(built) == len(numbers)
    assert intervals.overlap(built, first, end) == len(numbers & other)
    assert _numbers(intervals.without(built, first, end)) == numbers - other


@settings(deadline=None)
@given(pairs=Pairs)
def test_neighbours_are_merged(pairs: list[tuple[int, int]]) -> None:
    built, _ = _built(pairs)
    ends = [end for _, end in built[:-1]]
    assert all(end < first for end, (first, _) in zip(ends, built[1:], strict=True))
