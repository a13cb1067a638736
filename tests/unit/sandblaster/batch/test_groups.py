"""Who gets which group, and whose result counts."""

import pytest

from disttrain.sandblaster.batch import groups
from disttrain.sandblaster.batch.batches import Run
from disttrain.sandblaster.batch.groups import (
    Attempt,
    BackupRules,
    Evaluation,
    Result,
    Tally,
    Worker,
)

ANNA, BERTA, CLARA = (Worker(index, 1) for index in range(3))
RULES = BackupRules(start_when_remaining=2, most_attempts=2)
NO_COPIES = BackupRules(enabled=False)


def an_evaluation(count: int = 4, before: Evaluation | None = None) -> Evaluation:
    return groups.begun(1 if before is None else before.number + 1, count, (1, 1), before)


def granted(evaluation: Evaluation, worker: Worker, rules: BackupRules = RULES) -> Attempt | None:
    """The next one for a replica that has whatever it was given."""
    return groups.grant(evaluation, worker, rules, holding=list(evaluation.attempts))


def finish(evaluation: Evaluation, attempt: Attempt | None, loss_sum: float = 1.0) -> bool:
    assert attempt is not None
    result = Result(
        attempt=attempt.number,
        evaluation=evaluation.number,
        loss_sum=loss_sum,
        samples=10,
        shards=(1, 1),
    )
    return groups.take(evaluation, attempt.worker, result)


def test_groups_are_given_out_in_their_order() -> None:
    evaluation = an_evaluation()

    given = [granted(evaluation, worker) for worker in (ANNA, BERTA, ANNA)]

    assert [one.group for one in given if one] == [0, 1, 2]
    assert [one.number for one in given if one] == [1, 2, 3]


def test_an_attempt_whose_answer_was_lost_is_given_again() -> None:
    evaluation = an_evaluation()

    first = groups.grant(evaluation, ANNA, RULES)

    assert groups.grant(evaluation, ANNA, RULES) == first


def test_a_replica_gets_the_groups_that_it_had_before() -> None:
    first = an_evaluation()
    for worker in (ANNA, BERTA, BERTA, ANNA):
        finish(first, granted(first, worker))
    second = an_evaluation(before=first)

    assert [one.group for _ in range(2) if (one := granted(second, BERTA))] == [1, 2]
    assert [one.group for _ in range(2) if (one := granted(second, CLARA))] == [3, 0]
    assert granted(second, ANNA, NO_COPIES) is None


def test_copies_are_given_out_when_few_groups_remain() -> None:
    evaluation = an_evaluation(3)
    attempts = [granted(evaluation, ANNA), granted(evaluation, ANNA), granted(evaluation, BERTA)]
    assert granted(evaluation, CLARA) is None
    finish(evaluation, attempts[0])

    copies = [granted(evaluation, CLARA), granted(evaluation, CLARA)]

    assert [copy.group for copy in copies if copy] == [1, 2]
    assert granted(evaluation, CLARA) is None
    assert evaluation.copies == 2
    assert granted(evaluation, ANNA) is None, "has one, and the other has two attempts already"


def test_the_first_result_counts_and_the_second_changes_nothing() -> None:
    evaluation = an_evaluation(1)
    slow, fast = granted(evaluation, ANNA), granted(evaluation, BERTA)

    assert finish(evaluation, fast, 3.0)
    assert not finish(evaluation, slow, 5.0)

    assert fast is not None
    assert evaluation.is_complete
    assert groups.winners(evaluation) == (fast.number,)
    assert groups.tally(evaluation, evaluation.places) == Tally(loss_sum=3.0, samples=10)


@pytest.mark.parametrize(
    "changed",
    [{"evaluation": 2}, {"shards": (1, 2)}, {"shards": (1,)}, {"attempt": 99}],
    ids=["another evaluation", "a shard that restarted", "a shard is missing", "unknown"],
)
def test_a_result_that_does_not_fit_is_not_taken(changed: dict[str, object]) -> None:
    evaluation = an_evaluation()
    granted(evaluation, ANNA)
    fitting = {"attempt": 1, "evaluation": 1, "loss_sum": 1.0, "samples": 1, "shards": (1, 1)}

    assert not groups.take(evaluation, ANNA, Result(**{**fitting, **changed}))  # type: ignore[arg-type]
    assert groups.take(evaluation, ANNA, Result(**fitting))  # type: ignore[arg-type]


def test_a_result_of_another_incarnation_is_not_taken() -> None:
    evaluation = an_evaluation()
    granted(evaluation, ANNA)
    result = Result(attempt=1, evaluation=1, loss_sum=1.0, samples=1, shards=(1, 1))

    assert not groups.take(evaluation, Worker(ANNA.index, 2), result)


def test_the_groups_of_the_dead_are_given_to_others_unless_somebody_has_a_copy() -> None:
    evaluation = an_evaluation(2)
    first, second = granted(evaluation, ANNA), granted(evaluation, ANNA)
    copy = granted(evaluation, BERTA)
    assert first is not None
    assert second is not None
    assert copy is not None

    groups.lose(evaluation, ANNA)

    assert not finish(evaluation, first)
    assert evaluation.waiting == [second.group]
    assert evaluation.requeued == 1
    assert finish(evaluation, copy)


def test_losses_are_added_up_over_the_groups_places() -> None:
    sums = [0.1, 0.2, 0.3, 1e16, -1e16]
    losses = set()
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        evaluation = an_evaluation(5)
        attempts = [granted(evaluation, ANNA, NO_COPIES) for _ in sums]
        for place in order:
            finish(evaluation, attempts[place], sums[place])
        losses.add(groups.tally(evaluation, evaluation.places))

    total = ((0.1 + 0.2) + (0.3 + 1e16)) + -1e16
    assert losses == {Tally(loss_sum=total, samples=50)}


def test_runs_of_groups_are_given_out_and_counted_apart() -> None:
    runs = (Run(vector="a", groups=(4, 2)), Run(vector="b", groups=(7,)))
    evaluation = groups.begun(1, runs, (1, 1))
    attempts = [granted(evaluation, worker) for worker in (ANNA, BERTA, ANNA)]

    assert [one.group for one in attempts if one] == [4, 2, 7]
    for attempt, loss_sum in zip(attempts, (1.0, 2.0, 4.0), strict=True):
        finish(evaluation, attempt, loss_sum)

    assert groups.winners(evaluation) == (1, 2, 3)
    assert groups.tally(evaluation, runs[0].groups) == Tally(loss_sum=3.0, samples=20)
    assert groups.tally(evaluation, runs[1].groups) == Tally(loss_sum=4.0, samples=10)


def test_counts_are_added_up_beside_the_samples() -> None:
    evaluation = an_evaluation(2)
    for number, count in enumerate((2.5, 5.0), 1):
        granted(evaluation, ANNA)
        result = Result(
            attempt=number, evaluation=1, loss_sum=15.0, samples=10, count=count, shards=(1, 1)
        )
        assert groups.take(evaluation, ANNA, result)

    found = groups.tally(evaluation, evaluation.places)

    assert (found.samples, found.count) == (20, 7.5)
    assert found.loss_sum / found.divisor == 4.0
