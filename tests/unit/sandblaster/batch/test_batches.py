"""Which groups form a batch: overlaps, passes, and nothing twice."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disttrain.sandblaster.batch.batches import Batches
from disttrain.sandblaster.method import Part
from disttrain.sandblaster.operations import AFTER, BEFORE, MIDDLE


@st.composite
def some_batches(draw: st.DrawFn) -> Batches:
    overlap = draw(st.integers(1, 4))
    size = draw(st.integers(2 * overlap + 1, 2 * overlap + 10))
    groups = draw(st.integers(size + 1, size + 30))
    return Batches(seed=draw(st.integers(0, 5)), groups=groups, size=size, overlap=overlap)


@given(some_batches())
def test_neighbours_share_the_overlap_and_no_batch_has_a_group_twice(batches: Batches) -> None:
    found = [batches.batch(number) for number in range(3 * batches.groups)]

    for one in found:
        members = one.before + one.middle + one.after
        assert len(set(members)) == len(members) == batches.size
        assert len(one.before) == len(one.after) == batches.overlap
    assert all(one.after == other.before for one, other in pairwise(found))


@given(some_batches())
def test_every_pass_over_the_data_uses_every_group(batches: Batches) -> None:
    stream = list(batches.batch(0).before)
    for number in range(3 * batches.groups):
        one = batches.batch(number)
        stream += one.middle + one.after

    for first in range(0, 3 * batches.groups, batches.groups):
        assert sorted(stream[first : first + batches.groups]) == list(range(batches.groups))


def test_batches_are_a_function_of_seed_and_number() -> None:
    def made(seed: int) -> list[object]:
        batches = Batches(seed=seed, groups=50, size=10, overlap=2)
        return [batches.batch(number) for number in (7, 3, 7)]

    assert made(1) == made(1)
    assert made(1)[0] == made(1)[2] != made(2)[0]


def test_passes_differ() -> None:
    batches = Batches(seed=1, groups=40, size=10, overlap=2)

    first, second = (batches.batch(number) for number in (0, 5))

    assert (first.before, first.middle) != (second.before, second.middle)


def test_what_the_batch_before_had_is_left_out_of_what_is_new() -> None:
    batch = Batches(seed=1, groups=20, size=7, overlap=2).batch(3)

    assert [run.vector for run in batch.runs(Part.WHOLE)] == [BEFORE, MIDDLE, AFTER]
    assert batch.runs(Part.NEW) == batch.runs(Part.WHOLE)[1:]


@pytest.mark.parametrize(("groups", "size", "overlap"), [(10, 10, 1), (10, 4, 2), (10, 5, 0)])
def test_impossible_batches_are_refused(groups: int, size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match=f"batches of {size} groups that share {overlap}"):
        Batches(seed=0, groups=groups, size=size, overlap=overlap)
