"""What one shard does with gradients and commands, each of them at most once."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.batch.batches import Folding, Run
from disttrain.sandblaster.batch.groups import Worker
from disttrain.sandblaster.batch.programs import Decided, Program, ProgramLog
from disttrain.sandblaster.batch.staging import BatchShard, Chunk, Layout
from disttrain.sandblaster.errors import (
    NotStaged,
    ProgramRefused,
    StagingFull,
    WrongChunk,
    WrongEvaluation,
)
from disttrain.sandblaster.operations import ARRIVED, PARAMETERS, Operation

LENGTH = 4
SENDER = Worker(0, 1)
LAYOUT = Layout(elements=LENGTH, chunk_elements=2, element_type=np.float64)
DOUBLE: tuple[Operation, ...] = (ops.Scale(vector=PARAMETERS, factor=2.0),)


def a_shard(groups: int = 2, most_pieces: int = 10) -> BatchShard:
    shard = BatchShard(LAYOUT, most_pieces * LAYOUT.bytes)
    shard.vectors.make(PARAMETERS)[:] = 1.0
    shard.carry_out(Program(coordinator=1, number=1, iteration=0, evaluation=1, groups=groups))
    return shard


def stage(
    shard: BatchShard, attempt: int, value: float, group: int | None = None, evaluation: int = 1
) -> bool:
    """Both halves of a gradient; whether all of it is there. Group: that of the same number."""
    complete = False
    for number in range(LAYOUT.chunks):
        chunk = Chunk(
            sender=SENDER,
            evaluation=evaluation,
            group=attempt if group is None else group,
            attempt=attempt,
            number=number,
        )
        complete = shard.staging.stage(chunk, np.full(2, value))
    return complete


def commit(*attempts: int, samples: int = 1) -> Program:
    return Program(
        coordinator=1, number=2, iteration=0, evaluation=0, commits=attempts, samples=samples,
        operations=(ops.Dots(vector=ARRIVED, others=(ARRIVED,)),),
    )  # fmt: skip


def news(winners: dict[int, int], evaluation: int = 1, coordinator: int = 1) -> Decided:
    return Decided(coordinator=coordinator, evaluation=evaluation, winners=winners)


def test_committed_attempts_are_added_up_and_divided_by_the_samples() -> None:
    shard = a_shard()
    for attempt, group, value in ((1, 0, 10.0), (2, 1, 20.0), (3, 0, 999.0)):
        assert stage(shard, attempt, value, group)

    answer = shard.carry_out(commit(1, 2, samples=3))

    assert shard.vectors[ARRIVED].tolist() == [10.0] * LENGTH
    assert answer.scalars == (400.0,)


def test_sums_over_something_else_than_samples_are_divided_by_its_count() -> None:
    shard = a_shard()
    for attempt, group, value in ((1, 0, 10.0), (2, 1, 20.0)):
        assert stage(shard, attempt, value, group)

    shard.carry_out(replace(commit(1, 2, samples=3), divisor=7.5))

    assert shard.vectors[ARRIVED].tolist() == [4.0] * LENGTH


def test_a_chunk_that_came_before_is_left_alone() -> None:
    shard = a_shard(groups=1)
    stage(shard, 1, 10.0, group=0)
    stage(shard, 1, 20.0, group=0)

    shard.carry_out(commit(1))

    assert shard.vectors[ARRIVED].tolist() == [10.0] * LENGTH


def test_a_chunk_of_somebody_elses_attempt_is_refused() -> None:
    shard = a_shard(groups=2)
    half = Chunk(sender=SENDER, evaluation=1, group=0, attempt=1, number=0)
    shard.staging.stage(half, np.ones(2))

    with pytest.raises(WrongChunk, match=r"attempt 1 is at group 0 and of .*incarnation=1"):
        shard.staging.stage(replace(half, sender=Worker(0, 2), number=1), np.ones(2))


def test_what_a_dead_replica_left_unfinished_takes_no_memory() -> None:
    shard = a_shard(groups=2, most_pieces=2)
    stage(shard, 1, 1.0, group=0)
    shard.staging.stage(
        Chunk(sender=SENDER, evaluation=1, group=1, attempt=2, number=0), np.ones(2)
    )
    assert shard.staging.held_bytes == 2 * LAYOUT.bytes

    shard.staging.forget(SENDER)

    assert shard.staging.held_bytes == LAYOUT.bytes
    stage(shard, 3, 2.0, group=1)
    shard.carry_out(commit(1, 3))
    assert shard.vectors[ARRIVED].tolist() == [3.0] * LENGTH


def test_an_empty_range_takes_part_with_one_empty_chunk() -> None:
    layout = Layout(elements=0, chunk_elements=2, element_type=np.float64)
    shard = BatchShard(layout, 0)
    shard.vectors.make(PARAMETERS)
    shard.carry_out(Program(coordinator=1, number=1, iteration=0, evaluation=1, groups=1))

    chunk = Chunk(sender=SENDER, evaluation=1, group=0, attempt=1, number=0)

    assert shard.staging.stage(chunk, np.ones(0))
    assert shard.carry_out(commit(1)).scalars == (0.0,)


def test_a_shard_that_begins_with_a_checkpoint_goes_on_with_the_next_command() -> None:
    before = a_shard()
    before.carry_out(replace(commit(), operations=DOUBLE))
    log = ProgramLog(coordinator=before.log.coordinator, last=before.log.last)

    shard = BatchShard(LAYOUT, LAYOUT.bytes, before.vectors, log)

    with pytest.raises(ProgramRefused, match="program 2 does not follow on 2"):
        shard.carry_out(replace(commit(), operations=DOUBLE))
    shard.carry_out(replace(commit(), number=3, operations=DOUBLE))
    assert shard.vectors[PARAMETERS].tolist() == [4.0] * LENGTH


def test_half_an_attempt_is_not_committed() -> None:
    shard = a_shard()
    stage(shard, 1, 1.0, group=0)
    half = Chunk(sender=SENDER, evaluation=1, group=1, attempt=2, number=0)
    assert not shard.staging.stage(half, np.ones(2))

    with pytest.raises(NotStaged, match=r"evaluation 1 these attempts.* not staged here: \{1: 2\}"):
        shard.carry_out(commit(1, 2))

    stage(shard, 2, 1.0, group=1)
    shard.carry_out(commit(1, 2))
    assert shard.vectors[ARRIVED].tolist() == [2.0] * LENGTH


@pytest.mark.parametrize("winner", [1, 3])
def test_an_attempt_at_another_group_is_not_committed(winner: int) -> None:
    shard = a_shard()
    stage(shard, 1, 1.0, group=1)
    stage(shard, 2, 1.0, group=1)

    with pytest.raises(NotStaged, match=rf"by group, are not staged here: \{{0: {winner}"):
        shard.carry_out(commit(winner, 2))

    stage(shard, 4, 1.0, group=0)
    shard.carry_out(commit(4, 2))
    assert shard.vectors[ARRIVED].tolist() == [2.0] * LENGTH


def test_a_winner_of_a_group_that_is_none_is_refused() -> None:
    shard = a_shard()
    stage(shard, 1, 1.0, group=1)
    with pytest.raises(NotStaged, match=r"\{2: 1\}"):
        shard.decide(Decided(coordinator=1, evaluation=1, winners={2: 1}))


def test_too_few_attempts_are_not_committed() -> None:
    shard = a_shard(groups=3)
    stage(shard, 1, 1.0, group=0)

    with pytest.raises(NotStaged, match="1 attempts do not make evaluation 1 complete"):
        shard.carry_out(commit(1))


def test_gradients_of_another_evaluation_and_after_the_commit_are_refused() -> None:
    shard = a_shard(groups=1)
    with pytest.raises(WrongEvaluation, match="evaluation 1 is under way, got a part of 2"):
        stage(shard, 1, 1.0, 0, evaluation=2)
    stage(shard, 1, 1.0, 0)
    shard.carry_out(commit(1))

    with pytest.raises(WrongEvaluation):
        stage(shard, 2, 1.0, 0)


@pytest.mark.parametrize(
    ("group", "number", "values", "message"),
    [
        (2, 0, np.ones(2), "group 2 of 2"),
        (-1, 0, np.ones(2), "group -1 of 2"),
        (0, 2, np.ones(2), "chunk 2 of 2"),
        (0, -1, np.ones(2), "chunk -1 of 2"),
        (0, 0, np.ones(1), "chunk 0 has 1 elements of float64, wanted 2 of float64"),
        (0, 1, np.ones(2, np.float32), "chunk 1 has 2 elements of float32, wanted 2 of float64"),
        (1, 0, np.ones(2), "attempt 1 is at group 0 and of .*, got a part for group 1"),
    ],
)
def test_a_chunk_that_fits_nowhere_changes_nothing(
    group: int, number: int, values: np.ndarray[tuple[int], np.dtype[np.floating]], message: str
) -> None:
    shard = a_shard(groups=2)
    stage(shard, 1, 5.0, group=0)

    chunk = Chunk(sender=SENDER, evaluation=1, group=group, attempt=1, number=number)
    with pytest.raises(WrongChunk, match=message):
        shard.staging.stage(chunk, values)

    stage(shard, 2, 5.0, group=1)
    shard.carry_out(commit(1, 2))
    assert shard.vectors[ARRIVED].tolist() == [10.0] * LENGTH


def test_the_last_chunk_may_be_shorter() -> None:
    layout = Layout(elements=5, chunk_elements=2, element_type=np.float32)
    assert [layout.place(number) for number in range(layout.chunks)] == [
        slice(0, 2), slice(2, 4), slice(4, 5),
    ]  # fmt: skip


def test_memory_for_attempts_is_bounded() -> None:
    shard = a_shard(groups=4, most_pieces=2)
    stage(shard, 0, 1.0)
    stage(shard, 1, 1.0)

    with pytest.raises(
        StagingFull, match="64 bytes are staged in pieces of 32, and 64 are the limit"
    ):
        stage(shard, 2, 1.0)


def test_few_sums_are_kept_of_groups_that_have_their_winners() -> None:
    """In order, as many as 100 has binary digits, beside the one that arrives."""
    shard = a_shard(groups=100, most_pieces=8)

    for group in range(100):
        assert stage(shard, group, float(group))
        shard.decide(news({one: one for one in range(group + 1)}))
    shard.carry_out(commit(*range(100)))

    assert shard.vectors[ARRIVED].tolist() == [4950.0] * LENGTH


def test_copies_of_a_group_that_has_its_winner_take_no_memory() -> None:
    shard = a_shard(groups=1, most_pieces=2)
    stage(shard, 1, 5.0, group=0)
    stage(shard, 2, 999.0, group=0)
    shard.decide(news({0: 1}))

    assert all(stage(shard, attempt, 999.0, group=0) for attempt in range(3, 9))
    shard.carry_out(commit(1))

    assert shard.vectors[ARRIVED].tolist() == [5.0] * LENGTH


def test_news_of_another_evaluation_and_of_an_old_coordinator_change_nothing() -> None:
    shard = a_shard(groups=1)
    shard.decide(news({0: 1}, evaluation=7))
    stage(shard, 1, 5.0, group=0)
    shard.decide(news({}, coordinator=2))

    with pytest.raises(ProgramRefused, match="2 was heard already"):
        shard.decide(news({0: 1}))


def test_a_winner_that_an_earlier_coordinator_told_of_is_not_exchanged() -> None:
    shard = a_shard(groups=1)
    stage(shard, 1, 5.0, group=0)
    stage(shard, 2, 5.0, group=0)
    shard.decide(news({0: 1}))

    with pytest.raises(ProgramRefused, match="other attempts have won"):
        shard.carry_out(commit(2))


def test_a_command_that_is_said_again_is_not_done_again() -> None:
    shard = a_shard()
    command = Program(coordinator=1, number=2, iteration=0, evaluation=1, operations=DOUBLE)

    assert shard.carry_out(command) == shard.carry_out(command)
    assert shard.vectors[PARAMETERS].tolist() == [2.0] * LENGTH


@pytest.mark.parametrize(
    ("coordinator", "number", "words"),
    [(1, 3, "of coordinator 1; 2 was heard"), (2, 1, "does not follow"), (2, 4, "does not follow")],
    ids=["an old coordinator", "overtaken", "one is missing"],
)
def test_commands_out_of_their_turn_are_refused(coordinator: int, number: int, words: str) -> None:
    shard = a_shard()
    shard.carry_out(Program(coordinator=2, number=2, iteration=0, evaluation=1))
    command = Program(
        coordinator=coordinator, number=number, iteration=0, evaluation=1, operations=DOUBLE
    )

    with pytest.raises(ProgramRefused, match=words):
        shard.carry_out(command)

    assert shard.vectors[PARAMETERS].tolist() == [1.0] * LENGTH


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [("a", "a"), ("ab", "(ab)"), ("abc", "((ab)c)"), ("abcde", "(((ab)(cd))e)")],
)
def test_neighbours_are_added_first_in_whatever_order_they_come(terms: str, wanted: str) -> None:
    for places in itertools.permutations(range(len(terms))):
        folding = Folding(len(terms), lambda one, two: f"({one}{two})")
        for place in places:
            assert folding.total is None
            folding.put(place, terms[place])
        assert folding.total == wanted


RUNS = (Run(vector="a", groups=(4, 2)), Run(vector="b", groups=(7,)))


def a_shard_with_runs() -> BatchShard:
    shard = BatchShard(LAYOUT, 10 * LAYOUT.bytes)
    shard.carry_out(
        Program(coordinator=1, number=1, iteration=0, evaluation=1, groups=3, runs=RUNS)
    )
    return shard


def test_runs_of_groups_become_means_of_their_own() -> None:
    shard = a_shard_with_runs()
    for attempt, group in ((1, 7), (2, 2), (3, 4)):
        stage(shard, attempt, 10.0 * attempt, group)
    shard.decide(news({7: 1}))

    counted = tuple(replace(run, samples=5) for run in RUNS)
    adding = ops.Combine(target=ARRIVED, terms={"a": 0.5, "b": 0.25})
    shard.carry_out(replace(commit(3, 2, 1), runs=counted, operations=(adding,)))

    assert shard.vectors["a"].tolist() == [10.0] * LENGTH
    assert shard.vectors["b"].tolist() == [2.0] * LENGTH
    assert shard.vectors[ARRIVED].tolist() == [5.5] * LENGTH


def test_a_group_that_is_in_no_run_is_refused() -> None:
    with pytest.raises(WrongChunk, match="group 3 of 3"):
        stage(a_shard_with_runs(), 1, 1.0, group=3)


def test_runs_without_all_their_groups_are_not_committed() -> None:
    shard = a_shard_with_runs()
    stage(shard, 1, 1.0, group=7)

    with pytest.raises(NotStaged, match="1 attempts do not make"):
        shard.carry_out(replace(commit(1), runs=RUNS))
