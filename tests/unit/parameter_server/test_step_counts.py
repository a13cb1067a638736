"""How often each element was updated, beside a plain list of counts."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from disttrain.parameter_server.step_counts import StepCounts
from disttrain.state.placement import Range

FIRST, END = 10, 40
RANGES = st.lists(st.tuples(st.integers(FIRST, END), st.integers(FIRST, END)), max_size=30)


def counted(updates: list[tuple[int, int]]) -> tuple[StepCounts, list[int]]:
    counts, plain = StepCounts(Range(FIRST, END)), [0] * END
    for first, end in updates:
        counts.add(first, end)
        for element in range(first, end):
            plain[element] += 1
    return counts, plain


def spread(counts: StepCounts, first: int, end: int) -> list[int]:
    runs = counts.within(first, end)
    assert [run.first for run in runs[1:]] == [run.end for run in runs[:-1]]
    return [run.steps for run in runs for _ in range(run.first, run.end)]


@given(RANGES, st.integers(FIRST, END - 1), st.integers(1, END))
def test_each_element_has_a_count_of_its_own(
    updates: list[tuple[int, int]], first: int, count: int
) -> None:
    counts, plain = counted(updates)
    end = min(first + count, END)

    assert spread(counts, first, end) == plain[first:end]


@given(RANGES)
def test_there_are_no_more_runs_than_changes_of_the_count(updates: list[tuple[int, int]]) -> None:
    counts, plain = counted(updates)
    changes = sum(one != other for one, other in pairwise(plain[FIRST:]))

    assert len(counts.within(FIRST, END)) == changes + 1


@given(RANGES, st.integers(FIRST, END), st.integers(FIRST, END))
def test_other_holders_find_their_elements_in_the_tables_of_all(
    updates: list[tuple[int, int]], cut: int, now: int
) -> None:
    counts, plain = counted(updates)
    two = [StepCounts(held, counts.rows()) for held in (Range(FIRST, cut), Range(cut, END))]
    rows = [row for holder in two for row in holder.rows()]

    for held in (Range(FIRST, now), Range(now, END)):
        found = StepCounts(held, rows)
        if held.count:
            assert spread(found, held.first, held.end) == plain[held.first : held.end]


def test_no_update_is_no_row() -> None:
    assert StepCounts(Range(3, 9)).rows() == []
    assert StepCounts(Range(3, 3)).rows() == []
