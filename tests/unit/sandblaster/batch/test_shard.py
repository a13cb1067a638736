"""What one shard does with gradients and orders, each of them at most once."""

import numpy as np
import pytest

from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.batch.orders import Order
from disttrain.sandblaster.batch.pairwise import pairwise
from disttrain.sandblaster.batch.shard import BatchShard
from disttrain.sandblaster.batch.staging import Chunk
from disttrain.sandblaster.errors import NotStaged, OrderRefused, StagingFull, WrongEvaluation
from disttrain.sandblaster.names import ARRIVED, PARAMETERS
from disttrain.sandblaster.operations import Operation

LENGTH = 4
DOUBLE: tuple[Operation, ...] = (ops.Scale(vector=PARAMETERS, factor=2.0),)


def a_shard(most_pieces: int = 10) -> BatchShard:
    shard = BatchShard(LENGTH, np.float64, most_pieces * LENGTH * 8)
    shard.vectors.make(PARAMETERS)[:] = 1.0
    shard.carry_out(Order(coordinator=1, number=1, iteration=0, evaluation=1))
    return shard


def stage(shard: BatchShard, attempt: int, value: float, evaluation: int = 1) -> bool:
    """Both halves of a gradient; whether all of it is there."""
    complete = False
    for number, first in enumerate((0, 2)):
        chunk = Chunk(evaluation=evaluation, attempt=attempt, number=number, chunks=2, first=first)
        complete = shard.stage(chunk, np.full(2, value))
    return complete


def commit(*attempts: int, samples: int = 1) -> Order:
    return Order(
        coordinator=1, number=2, iteration=0, evaluation=0, commits=attempts, samples=samples,
        operations=(ops.Dots(vector=ARRIVED, others=(ARRIVED,)),),
    )  # fmt: skip


def test_committed_attempts_are_added_up_and_divided_by_the_samples() -> None:
    shard = a_shard()
    for attempt, value in ((1, 10.0), (2, 20.0), (3, 999.0)):
        assert stage(shard, attempt, value)

    answer = shard.carry_out(commit(2, 1, samples=3))

    assert shard.vectors[ARRIVED].tolist() == [10.0] * LENGTH
    assert answer.scalars == (400.0,)


def test_a_chunk_that_came_before_is_left_alone() -> None:
    shard = a_shard()
    stage(shard, 1, 10.0)
    stage(shard, 1, 20.0)

    shard.carry_out(commit(1))

    assert shard.vectors[ARRIVED].tolist() == [10.0] * LENGTH


def test_half_an_attempt_is_not_committed() -> None:
    shard = a_shard()
    stage(shard, 1, 1.0)
    half = Chunk(evaluation=1, attempt=2, number=0, chunks=2, first=0)
    assert not shard.stage(half, np.ones(2))

    with pytest.raises(NotStaged, match=r"attempts \[2\] of evaluation 1"):
        shard.carry_out(commit(1, 2))

    stage(shard, 2, 1.0)
    shard.carry_out(commit(1, 2))
    assert shard.vectors[ARRIVED].tolist() == [2.0] * LENGTH


def test_gradients_of_another_evaluation_and_after_the_commit_are_refused() -> None:
    shard = a_shard()
    with pytest.raises(WrongEvaluation, match="evaluation 1 is under way, got a part of 2"):
        stage(shard, 1, 1.0, evaluation=2)
    stage(shard, 1, 1.0)
    shard.carry_out(commit(1))

    with pytest.raises(WrongEvaluation):
        stage(shard, 2, 1.0)


def test_memory_for_attempts_is_bounded() -> None:
    shard = a_shard(most_pieces=2)
    stage(shard, 1, 1.0)
    stage(shard, 2, 1.0)

    with pytest.raises(StagingFull, match="2 pieces of 32 bytes are staged, and 64 bytes"):
        stage(shard, 3, 1.0)


def test_an_order_that_is_said_again_is_not_done_again() -> None:
    shard = a_shard()
    order = Order(coordinator=1, number=2, iteration=0, evaluation=1, operations=DOUBLE)

    assert shard.carry_out(order) == shard.carry_out(order)
    assert shard.vectors[PARAMETERS].tolist() == [2.0] * LENGTH


@pytest.mark.parametrize(
    ("coordinator", "number", "words"),
    [(1, 3, "of coordinator 1; 2 was heard"), (2, 1, "does not follow"), (2, 4, "does not follow")],
    ids=["an old coordinator", "overtaken", "one is missing"],
)
def test_orders_out_of_their_turn_are_refused(coordinator: int, number: int, words: str) -> None:
    shard = a_shard()
    shard.carry_out(Order(coordinator=2, number=2, iteration=0, evaluation=1))
    order = Order(
        coordinator=coordinator, number=number, iteration=0, evaluation=1, operations=DOUBLE
    )

    with pytest.raises(OrderRefused, match=words):
        shard.carry_out(order)

    assert shard.vectors[PARAMETERS].tolist() == [1.0] * LENGTH


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [("a", "a"), ("ab", "(ab)"), ("abc", "((ab)c)"), ("abcde", "(((ab)(cd))e)")],
)
def test_neighbours_are_added_first(terms: str, wanted: str) -> None:
    assert pairwise(list(terms), lambda one, two: f"({one}{two})") == wanted
