"""In which order partitions take the slices of a batch."""

from hypothesis import given
from hypothesis import strategies as st

from disttrain.parallel import micro_batches
from disttrain.parallel.micro_batches import Stage, Turn
from disttrain.parallel.windows import Span

PLACES = st.lists(st.integers(0, 3), min_size=1, max_size=9)


def test_layers_in_a_row_on_one_partition_are_a_stage() -> None:
    assert micro_batches.stages([0, 0, 2, 1, 1, 0]) == [
        Stage(0, 0, 2),
        Stage(2, 2, 3),
        Stage(1, 3, 5),
        Stage(0, 5, 6),
    ]


def test_slices_are_as_equal_as_they_can_be_and_never_empty() -> None:
    assert micro_batches.slices(7, 3) == [Span(0, 3), Span(3, 5), Span(5, 7)]
    assert micro_batches.slices(2, 5) == [Span(0, 1), Span(1, 2)]
    assert micro_batches.slices(0, 5) == [Span(0, 0)]


def test_two_partitions_fill_and_drain() -> None:
    stages = micro_batches.stages([0, 1])
    every = micro_batches.of_forward(2, 3)

    assert every == [Turn(0, 0), Turn(0, 1), Turn(1, 0), Turn(0, 2), Turn(1, 1), Turn(1, 2)]
    assert micro_batches.of_place(every, stages, 1) == [Turn(1, 0), Turn(1, 1), Turn(1, 2)]
    assert micro_batches.of_place(every, stages, 2) == []


@given(PLACES, st.integers(1, 6))
def test_nobody_waits_for_a_later_turn_and_messages_come_as_they_are_sent(
    places: list[int], slices: int
) -> None:
    stages = micro_batches.stages(places)
    every = micro_batches.of_forward(len(stages), slices)

    assert len(set(every)) == len(every) == len(stages) * slices
    order = {turn: number for number, turn in enumerate(every)}
    for turn in every:
        if turn.stage:
            assert order[Turn(turn.stage - 1, turn.slice)] < order[turn]
    for turns_in_order in (every, every[::-1]):
        step = 1 if turns_in_order is every else -1
        for source in range(4):
            sent = [
                Turn(turn.stage + step, turn.slice)
                for turn in micro_batches.of_place(turns_in_order, stages, source)
                if 0 <= turn.stage + step < len(stages)
            ]
            for to in range(4):
                taken = micro_batches.of_place(turns_in_order, stages, to)
                arriving = [turn for turn in sent if stages[turn.stage].place == to]
                assert arriving == [turn for turn in taken if turn in arriving]


@given(st.integers(1, 6), st.integers(1, 8))
def test_a_slice_is_computed_while_others_are(stages: int, slices: int) -> None:
    """With one stage in each partition, all turns that could go on at once follow each other."""
    at = {turn: turn.stage + turn.slice for turn in micro_batches.of_forward(stages, slices)}

    assert list(at.values()) == sorted(at.values())
    assert max(at.values()) + 1 == stages + slices - 1
