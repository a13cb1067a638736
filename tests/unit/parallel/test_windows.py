"""Windows of an array, and who sends what to whom."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.divided import elements, messages
from disttrain.parallel.windows import Box, Grid, Plan, Span, split, square_grid

lengths = st.integers(0, 12)
spans = st.tuples(st.integers(-3, 12), st.integers(0, 9)).map(lambda t: Span(t[0], t[0] + t[1]))
boxes = st.tuples(spans, spans).map(lambda t: Box(*t))
grids = st.tuples(st.integers(1, 3), st.integers(1, 3)).map(lambda t: Grid(*t))


def places(box: Box) -> set[tuple[int, int]]:
    return set(itertools.product(range(*box.rows), range(*box.columns)))


@given(st.integers(0, 50), st.integers(1, 9), st.integers(1, 4))
def test_parts_are_whole_units_and_differ_by_one_at_most(
    length: int, parts: int, unit: int
) -> None:
    found = split(length, parts, unit)

    assert [span.first for span in found] == [0, *(span.end for span in found[:-1])]
    assert found[-1].end == length
    assert all(span.first % unit == 0 for span in found)
    units = [span.length // unit for span in found]
    assert max(units) - min(units) <= 1


@given(grids, lengths, lengths)
def test_windows_cover_the_array_once(grid: Grid, height: int, width: int) -> None:
    windows = grid.windows(height, width)

    assert len(windows) == grid.size
    owners = [place for box in windows for place in places(box)]
    assert len(owners) == len(set(owners)) == height * width


@given(grids, lengths, lengths, st.data())
def test_everything_needed_comes_once_and_nothing_else(
    grid: Grid, height: int, width: int, data: st.DataObject
) -> None:
    owned = grid.windows(height, width)
    needed = tuple(data.draw(boxes) for _ in owned)
    plan = Plan(owned, needed)
    sent = 0
    for rank, wanted in enumerate(needed):
        parts = [places(plan.between(rank, rank)), *(places(b) for _, b in plan.received_by(rank))]
        array = set(itertools.product(range(height), range(width)))
        assert set().union(*parts) == places(wanted) & array
        assert sum(map(len, parts)) == len(set().union(*parts))
        assert all(box.area for _, box in plan.received_by(rank))
        sent += sum(map(len, parts[1:]))
    assert elements(plan) == sent
    assert messages(plan) == sum(1 for rank in range(grid.size) for _ in plan.received_by(rank))


def test_a_plan_is_of_as_many_windows_on_both_sides() -> None:
    with pytest.raises(ValueError, match="1 partitions own and 2 need"):
        Plan(Grid(1, 1).windows(2, 2), Grid(1, 2).windows(2, 2))


@pytest.mark.parametrize(("count", "grid"), [(1, (1, 1)), (6, (2, 3)), (7, (1, 7)), (81, (9, 9))])
def test_a_grid_is_as_square_as_it_can_be(count: int, grid: tuple[int, int]) -> None:
    assert square_grid(count) == Grid(*grid)
