"""Fragments: each element is in one of them, of about equal length, whatever shards there are."""

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import placements
from disttrain.state.fragments import LEAST_ELEMENTS, WHOLE, Fragment, most
from disttrain.state.share import Share
from disttrain.transport.header import ElementType


def fragments(count: int) -> list[Fragment]:
    return [Fragment(number, count) for number in range(count)]


@given(elements=st.integers(1, 5_000_000), count=st.integers(1, 64))
def test_each_element_is_in_one_fragment(elements: int, count: int) -> None:
    count = min(count, most(elements))
    runs = sorted((run.first, run.end) for each in fragments(count) for run in each.runs(elements))
    assert runs[0][0] == 0
    assert runs[-1][1] == elements
    assert all(end == first for (_, end), (first, _) in pairwise(runs))
    lengths = [sum(run.count for run in each.runs(elements)) for each in fragments(count)]
    assert min(lengths) >= min(elements, LEAST_ELEMENTS)


@pytest.mark.parametrize("elements", [3_000_000, 100_000_000])
def test_fragments_of_a_long_vector_differ_by_a_stripe_at_most(elements: int) -> None:
    lengths = [sum(run.count for run in each.runs(elements)) for each in fragments(4)]
    assert max(lengths) - min(lengths) <= 1 << 18


@given(elements=st.integers(256, 20_000), holders=st.integers(1, 7), count=st.integers(2, 8))
def test_shards_have_all_of_a_fragment_and_each_has_a_chunk(
    elements: int, holders: int, count: int
) -> None:
    count = min(count, most(elements))
    placement = placements.a_placement({placements.PARAMETERS: elements}, holders)
    for fragment in fragments(count):
        parts = [
            Share(placement, holder, 512).fragment_chunks(placements.PARAMETERS, fragment)
            for holder in range(holders)
        ]
        assert all(own for own in parts)
        assert all([part.chunk for part in own] == list(range(len(own))) for own in parts)
        assert all(part.count <= 128 for own in parts for part in own)
        found = sorted(
            chain.from_iterable(range(p.first, p.first + p.count) for own in parts for p in own)
        )
        wanted = [
            element for run in fragment.runs(elements) for element in range(run.first, run.end)
        ]
        assert found == sorted(wanted)


def test_the_whole_vector_is_cut_as_without_fragments() -> None:
    placement = placements.a_placement({placements.PARAMETERS: 1000}, 3)
    share = Share(placement, 1, 512)
    count = share.num_chunks(placements.PARAMETERS)
    assert list(share.fragment_chunks(placements.PARAMETERS, WHOLE)) == [
        share.chunk(placements.PARAMETERS, number) for number in range(count)
    ]


@pytest.mark.parametrize("sent", [ElementType.FLOAT32, ElementType.BFLOAT16, ElementType.INT8])
def test_fragments_add_up_to_the_bytes_of_the_whole(sent: ElementType) -> None:
    vector = placements.PARAMETERS.rounded(sent)
    each = [fragment.nbytes(vector, 10_001) for fragment in fragments(4)]
    assert sum(each) == WHOLE.nbytes(vector, 10_001)
    assert max(each) < 1.1 * sum(each) / 4
