"""What a replica's processes decide together: each hears the same, whatever each has."""

from dataclasses import replace

import pytest

from builders.agreements import COUNT, in_all, rank_of
from builders.local_training import LocalTraining, adamw, batches, local_steps
from builders.networks import a_network
from builders.parameter_servers import OneShard
from disttrain.coordinator.protocol.fields import Position
from disttrain.parameter_server.client import Versions
from disttrain.replica.agreement import ALONE, Answered, Together

FAR = Position(lease=1 << 40, offset=(1 << 52) + 1)
"""Of the numbers that travel, about the largest."""


def test_a_gradients_norm_is_of_all_parts_and_the_loss_of_the_one_that_knows_it() -> None:
    said = [(4.0, 0.125, 1e15 + 1, 1.0), (0.25, 0.0, 0.0, 0.0), (1e-3, 0.0, 0.0, 0.0)]

    found = in_all(lambda one: one.judge(said[rank_of(one)], Answered()))

    assert found == [[4.251, 0.125, 1e15 + 1, 1.0]] * COUNT


def test_what_counts_as_answered_is_what_the_shards_of_all_have_answered() -> None:
    answered = [
        Answered(FAR, samples=(1 << 52) + 3, pushes=9),
        Answered(replace(FAR, offset=FAR.offset - 1), samples=(1 << 52) + 2, pushes=8),
        Answered(FAR, samples=(1 << 52) + 3, pushes=9),
    ]

    def work(one: Together) -> tuple[Answered, Answered, Answered]:
        own = answered[rank_of(one)]
        before = one.answers(own)
        one.judge((0.0,), own)
        judged = one.answers(own)
        one.tell(Answered(FAR, samples=(1 << 52) + 3, pushes=9))
        return before, judged, one.answers(own)

    assert in_all(work) == [(Answered(), answered[1], answered[0])] * COUNT


def test_a_push_that_one_process_had_refused_as_too_old_is_so_for_all() -> None:
    late = [Answered(FAR), Answered(FAR), Answered(FAR, was_too_stale=True)]

    def work(one: Together) -> bool:
        one.judge((0.0,), late[rank_of(one)])
        return one.answers(late[rank_of(one)]).was_too_stale

    assert in_all(work) == [True] * COUNT


@pytest.mark.parametrize("has", [(False, False, False), (True, False, True), (True, True, True)])
def test_all_hear_whether_it_holds_in_all_and_in_one(has: tuple[bool, ...]) -> None:
    found = in_all(lambda one: (one.all(has[rank_of(one)]), one.any(has[rank_of(one)])))

    assert found == [(all(has), any(has))] * COUNT


def test_the_least_number_holds_and_each_place_is_told_by_who_knows_it() -> None:
    known = [{0: 7}, {2: 9, 1: 8}, {}]

    def work(one: Together) -> tuple[int, tuple[int, ...]]:
        rank = rank_of(one)
        return one.least(10 - rank), one.put_together(known[rank], 3)

    assert in_all(work) == [(8, (7, 8, 9))] * COUNT


def test_of_a_process_that_is_alone_holds_what_it_says() -> None:
    own = Answered(FAR, 3, 2)

    assert ALONE.judge((1.5, 0.5), own) == [1.5, 0.5]
    assert ALONE.answers(own) == own
    assert (ALONE.all(has=True), ALONE.any(has=False), ALONE.least(4)) == (True, False, 4)
    assert ALONE.put_together({1: 5, 0: 4}, 2) == (4, 5)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("adopt", ["replace", "add"])
def test_local_steps_are_taken_and_measured_in_all_at_once_or_in_none(adopt: str) -> None:
    """One process's shard answers late: whatever the other has by then, it takes over nothing."""
    servers = [OneShard(0.5), OneShard(0.5)]

    def work(one: Together) -> tuple[list[int], list[Versions]]:
        rank = rank_of(one)
        manifest = local_steps(steps=4, adopt=adopt, optimizer=adamw())
        trained = LocalTraining(a_network(), servers[rank], manifest, agreement=one)
        given, measured, adopted = batches(rank), list[Versions](), list[int]()
        try:
            for number in range(24):
                trained.step(next(given))
                if number == 9:
                    servers[1].fetch_gate.clear()
                    one.tell(Answered())
                    trained.stepper.measure(lambda fetch: measured.append(fetch()))
                if number == 10:
                    assert measured == []
                    one.tell(Answered())
                    servers[1].fetch_gate.set()
                trained.stepper.between_steps()
                adopted.append(trained.stepper._adopted)
            trained.stepper.finish_measuring()
            trained.stepper.flush()
        finally:
            trained.close()
        return adopted, measured

    (adopted, measured), others = in_all(work, 2)
    assert others == (adopted, measured)
    assert len(measured) == 1
