"""Who holds what."""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import placements
from builders.placements import a_placement
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import (
    TRAINED,
    Held,
    HeldPart,
    Placement,
    Range,
    chunks,
    covered,
    place,
    place_as_formerly,
    require_sound,
)
from disttrain.state.vector import FORMER_NAMES, Vector

MODEL = {placements.FROZEN: 7, placements.PARAMETERS: 1000, placements.BUFFERS_INT64: 3}


@given(
    elements=st.integers(0, 100_000),
    holders=st.integers(1, 40),
    vector=st.sampled_from([placements.PARAMETERS, placements.PARAMETERS_FLOAT64]),
)
def test_ranges_are_contiguous_aligned_and_nearly_equal(
    elements: int, holders: int, vector: Vector
) -> None:
    unit = 64 // vector.element_bytes
    made = require_sound(a_placement({vector: elements}, holders))
    ranges = [made.ranges(holder)[vector] for holder in range(holders)]

    assert made.elements(vector) == elements
    assert (ranges[0].first, ranges[-1].end) == (0, elements)
    assert all(a.end == b.first for a, b in itertools.pairwise(ranges))
    assert all(part.first % unit == 0 or not part.count for part in ranges)
    assert max(part.count for part in ranges) - min(part.count for part in ranges) < 2 * unit


def test_what_is_trained_comes_first_and_what_is_kept_lies_as_it() -> None:
    made = a_placement(MODEL, 3, ("momentum",))
    momentum = placements.PARAMETERS.beside("momentum")

    assert made.number(placements.PARAMETERS) == TRAINED
    assert made.vectors[-1] == momentum
    for holder in range(3):
        ranges = made.ranges(holder)
        assert ranges[momentum] == ranges[placements.PARAMETERS]
        assert tuple(ranges) == made.vectors


@given(
    lengths=st.lists(st.integers(0, 3000), min_size=2, max_size=5),
    more=st.integers(0, 7),
)
def test_each_partition_has_holders_of_its_own(lengths: list[int], more: int) -> None:
    vectors = [placements.PARAMETERS._replace(partition=p) for p in range(len(lengths))]
    buffers = [placements.BUFFERS_INT64._replace(partition=p) for p in range(len(lengths))]
    elements = dict(zip(vectors, lengths, strict=True)) | dict.fromkeys(buffers, 3)
    holders = len(lengths) + more

    made = require_sound(a_placement(elements, holders, ("momentum",)))

    of_each = [made.holders_of(partition) for partition in range(len(lengths))]
    assert [*itertools.chain(*of_each)] == [*range(holders)]
    for partition, own in enumerate(of_each):
        momentum = vectors[partition].beside("momentum")
        for holder in own:
            ranges = made.ranges(holder)
            assert {vector.partition for vector in ranges} == {partition}
            assert ranges[momentum] == ranges[vectors[partition]]
        assert made.elements(momentum) == lengths[partition]
        assert sum(made.ranges(holder)[buffers[partition]].count for holder in own) == 3
    assert made.holders_of(len(lengths)) == ()


def test_factors_are_told_by_partition() -> None:
    second = placements.PARAMETERS._replace(partition=1)
    first, other = placements.of_lengths({placements.PARAMETERS: 8, second: 4}).tensors
    layout = ModelLayout(tensors=(first, replace(other, rate_factor=0.5)))

    made = require_sound(place(layout, 2))

    assert made.factors_in(0) == ()
    assert [each.learning_rate for each in made.factors_in(1)] == [0.5]
    assert made.factors_in(2) == ()


def test_more_partitions_than_holders_are_refused() -> None:
    second = placements.PARAMETERS._replace(partition=1)
    with pytest.raises(ValueError, match="2 partitions need as many holders, and there are 1"):
        a_placement({placements.PARAMETERS: 8, second: 4}, 1)


def test_a_model_of_which_nothing_is_trained_has_an_empty_vector() -> None:
    made = a_placement({placements.FROZEN: 7}, 2)
    assert made.vectors == (placements.PARAMETERS, placements.FROZEN)
    assert [made.ranges(holder)[placements.PARAMETERS].count for holder in range(2)] == [0, 0]


def test_numbers_are_of_one_table() -> None:
    made = a_placement(MODEL)
    assert [made.vector(made.number(vector)) for vector in made.vectors] == list(made.vectors)
    assert made.vector(0) is None
    assert made.vector(len(made.vectors) + 1) is None
    with pytest.raises(ValueError, match="not in"):
        made.number(placements.TRIAL)


@given(seed=st.integers(0, 2**32), elements=st.integers(1, 5000), holders=st.integers(1, 9))
def test_every_element_of_a_range_is_found_once(seed: int, elements: int, holders: int) -> None:
    chance = random.Random(seed)
    first, end = sorted((chance.randint(0, elements), chance.randint(0, elements)))
    made = a_placement({placements.PARAMETERS: elements}, holders)
    ranges = [made.ranges(holder)[placements.PARAMETERS] for holder in range(holders)]

    found = made.parts(placements.PARAMETERS, Range(first, end))

    elements_found = [
        ranges[part.holder].first + part.first + place
        for part in found
        for place in range(part.count)
    ]
    assert elements_found == list(range(first, end))
    assert [part.offset for part in found] == [
        sum(part.count for part in found[:number]) for number in range(len(found))
    ]


def test_elements_that_nobody_holds_are_not_found() -> None:
    made = a_placement({placements.PARAMETERS: 40}, 2)
    with pytest.raises(ValueError, match=r"nobody holds all of 0/parameters/float32 \[30, 50\)"):
        made.parts(placements.PARAMETERS, Range(30, 50))
    with pytest.raises(ValueError, match="nobody holds"):
        made.parts(placements.FROZEN, Range(0, 1))
    assert made.parts(placements.FROZEN, Range(0, 0)) == ()
    assert made.parts(placements.PARAMETERS, Range(30, 40)) == (HeldPart(1, 14, 0, 10),)


ONE = placements.PARAMETERS


@pytest.mark.parametrize(
    ("vectors", "holders", "why"),
    [
        ((ONE, ONE), ((Held(0, 0, 1), Held(1, 0, 1)),), "twice in the table"),
        ((ONE,), ((Held(1, 0, 1),),), "has vector 1 of 1"),
        ((ONE,), ((Held(0, 0, 1), Held(0, 1, 2)),), "two ranges of one vector"),
        ((ONE,), ((Held(0, 0, 2),), (Held(0, 3, 4),)), "not held exactly once"),
        ((ONE,), ((Held(0, 0, 2),), (Held(0, 1, 4),)), "not held exactly once"),
        ((ONE,), ((Held(0, 2, 0),),), "not held exactly once"),
        ((ONE,), ((Held(0, 1, 2),),), "not held exactly once"),
    ],
)
def test_a_table_by_which_elements_are_lost_or_doubled_is_refused(
    vectors: tuple[Vector, ...], holders: tuple[tuple[Held, ...], ...], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        require_sound(Placement(vectors=vectors, holders=holders))


def test_a_table_may_have_any_order_and_any_cuts() -> None:
    holders = ((Held(0, 5, 5),), (Held(0, 3, 9), Held(1, 0, 2)), (Held(0, 0, 3),))
    odd = Placement(vectors=(ONE, placements.FROZEN), holders=holders)
    with pytest.raises(ValueError, match="not held"):
        require_sound(odd)
    empty = ((Held(0, 3, 3),), *holders[1:])
    assert require_sound(Placement(vectors=odd.vectors, holders=empty)).elements(ONE) == 9


def test_ledgers_of_earlier_versions_are_read_by_the_numbers_of_that_time() -> None:
    made = place_as_formerly(placements.of_lengths(MODEL), 2)
    numbers = {made.number(vector): vector for vector in FORMER_NAMES.values()}
    assert numbers == dict(enumerate(FORMER_NAMES.values(), 1))
    for vector in MODEL:
        ranges = [made.ranges(holder)[vector] for holder in range(2)]
        assert ranges == [a_placement(MODEL, 2).ranges(holder)[vector] for holder in range(2)]


@given(first=st.integers(0, 1000), count=st.integers(0, 1000), size=st.integers(1, 100))
def test_chunks_cover_a_range_in_order(first: int, count: int, size: int) -> None:
    pieces = chunks(Range(first, first + count), size)

    assert [e for piece in pieces for e in range(piece.first, piece.end)] == list(
        range(first, first + count)
    )
    assert all(piece.count == size for piece in pieces[:-1])


def test_what_ranges_cover_is_known_only_without_gaps_and_overlaps() -> None:
    assert covered([]) == 0
    assert covered([Range(4, 9), Range(0, 4)]) == 9
    assert covered([Range(0, 4), Range(5, 9)]) is None
    assert covered([Range(0, 4), Range(3, 9)]) is None
