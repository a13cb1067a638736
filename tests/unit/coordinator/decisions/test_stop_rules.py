"""Stop rules, schedules, progress and the hint about the limit."""

import math

import pytest

from builders.machines import Machine
from disttrain.coordinator.decisions import running, stop_rules
from disttrain.coordinator.decisions.stop_rules import Reached
from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.journal.state import Evaluation as Ended
from disttrain.coordinator.journal.state import Improvement, State
from disttrain.coordinator.phases import StopReason
from disttrain.coordinator.protocol.reports import (
    STALENESS_BOUNDS,
    ReplicaReport,
    staleness_bucket,
    staleness_quantile,
)
from disttrain.coordinator.status import status
from disttrain.job.stop import Better, Evaluation, Patience, Stop, TargetMetric
from disttrain.transport.header import Role


def _reached(**values: float) -> Reached:
    measures = {"accuracy": values.pop("accuracy", 0.0)}
    whole = {"epochs": 0, "steps": 0, "samples": 0, "seconds": 0.0} | values
    return Reached(measures=measures, **whole)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stop", "reached", "reason"),
    [
        (Stop(epochs=2), _reached(epochs=1), None),
        (Stop(epochs=2), _reached(epochs=2), StopReason.EPOCHS),
        (Stop(steps=5), _reached(steps=5), StopReason.STEPS),
        (Stop(samples=5), _reached(samples=6), StopReason.SAMPLES),
        (Stop(seconds=1.5), _reached(seconds=1.5), StopReason.SECONDS),
        (Stop(epochs=9, seconds=1.5), _reached(seconds=2), StopReason.SECONDS),
    ],
)
def test_the_first_rule_that_is_met_ends_the_job(
    stop: Stop, reached: Reached, reason: StopReason | None
) -> None:
    assert stop_rules.met(stop, reached) is reason


def test_a_target_may_be_a_lower_or_an_upper_bound_and_is_never_met_by_nan() -> None:
    at_least = TargetMetric(name="accuracy", at_least=0.9)
    at_most = TargetMetric(name="loss", at_most=0.1)
    assert stop_rules.is_target_met(at_least, {"accuracy": 0.9})
    assert not stop_rules.is_target_met(at_least, {"accuracy": math.nan})
    assert not stop_rules.is_target_met(at_least, {})
    assert stop_rules.is_target_met(at_most, {"loss": 0.1})
    assert not stop_rules.is_target_met(at_most, {"loss": 0.2})
    stop = Stop(epochs=9, target_metric=at_least)
    assert stop_rules.met(stop, _reached(accuracy=0.95)) is StopReason.TARGET_METRIC


def _ended(value: float | None, name: str = "accuracy", *, final: bool = False) -> Ended:
    measures = {name: value} if name and value is not None else {}
    loss = None if name else value
    return Ended(epoch=1, samples=8, seconds=1.0, loss=loss, measures=measures, final=final)


def _waited(patience: Patience, *evaluations: Ended) -> list[int]:
    """Vain evaluations after each."""
    known: Improvement | None = None
    counts = []
    for evaluation in evaluations:
        known = stop_rules.improvement(patience, known, evaluation)
        counts.append(stop_rules.vain_evaluations(patience, known))
    return counts


@pytest.mark.parametrize(
    ("patience", "values", "counts"),
    [
        (Patience(evaluations=2, name="accuracy"), [0.1, 0.2, 0.2, 0.1, 0.3], [0, 0, 1, 2, 0]),
        (
            Patience(evaluations=2, name="accuracy", better=Better.LOWER),
            [0.5, 0.6, 0.4, 0.4],
            [0, 1, 0, 1],
        ),
        (
            Patience(evaluations=2, name="accuracy", minimum_improvement=0.25),
            [0.0, 0.25, 0.375, 0.5],
            [0, 1, 0, 1],
        ),
        (
            Patience(evaluations=2, name="accuracy"),
            [math.nan, None, 0.1, math.nan, math.inf, None],
            [1, 2, 0, 1, 2, 3],
        ),
    ],
    ids=["higher", "lower", "by more than a little", "no numbers"],
)
def test_patience_counts_evaluations_in_a_row_that_find_nothing_better(
    patience: Patience, values: list[float | None], counts: list[int]
) -> None:
    assert _waited(patience, *map(_ended, values)) == counts


def test_patience_goes_by_the_loss_where_no_measure_is_named() -> None:
    losses = [_ended(value, "") for value in (2.0, 1.0, 1.5, None, 0.5)]
    assert _waited(Patience(evaluations=2), *losses) == [0, 0, 1, 2, 0]


def test_patience_ends_a_job_after_its_other_rules() -> None:
    stop = Stop(epochs=9, patience=Patience(evaluations=3))
    assert stop_rules.met(stop, _reached(vain_evaluations=2)) is None
    assert stop_rules.met(stop, _reached(vain_evaluations=3)) is StopReason.PATIENCE
    assert stop_rules.met(stop, _reached(vain_evaluations=3, epochs=9)) is StopReason.EPOCHS


def test_the_measure_of_the_exported_model_is_no_vain_evaluation() -> None:
    patience = Patience(evaluations=1, name="accuracy")
    assert _waited(patience, _ended(0.5), _ended(0.1, final=True)) == [0, 0]


def test_another_measure_begins_to_count_anew() -> None:
    known = Improvement(name="accuracy", best=0.5, evaluations=7)
    by_loss = Patience(evaluations=3)
    assert stop_rules.vain_evaluations(by_loss, known) == 0
    assert stop_rules.improvement(by_loss, known, _ended(2.0, "")) == Improvement(name="", best=2.0)


def _transaction(state: State, now: float, **settings: object) -> Transaction:
    """Of a job whose shard has its values."""
    shard = Group(role=Role.SHARD, index=0, incarnation=1, instance="s", initialised=True)
    state.shards = {0: shard}
    return Machine(state, **settings).coordinator._transaction(now)


def test_evaluations_are_due_by_epochs_and_by_seconds() -> None:
    def due(rules: Evaluation, epochs: int, evaluated: int, since: float) -> bool:
        state = State(test_samples=10, evaluated_epoch=evaluated, evaluation_tried=100.0)
        state.data.epochs_done = epochs
        return running.is_evaluation_due(_transaction(state, 100.0 + since, evaluation=rules))

    every_other = Evaluation(every_epochs=2)
    assert not due(every_other, 1, 0, 99)
    assert due(every_other, 2, 0, 0)
    assert not due(every_other, 3, 2, 0)
    assert due(every_other, 5, 2, 0)
    by_time = Evaluation(every_epochs=None, every_seconds=5.0)
    assert not due(by_time, 9, 0, 4.9)
    assert due(by_time, 0, 0, 5.0)


def test_the_first_checkpoint_is_due_at_once_and_a_failed_one_soon() -> None:
    def due(tried: float | None, now: float, last: int | None) -> bool:
        state = State(checkpoint_tried=tried, next_checkpoint=3, last_checkpoint=last)
        return running.is_checkpoint_due(_transaction(state, now, checkpoint_seconds=60.0))

    assert due(None, 100.0, last=2)
    assert not due(100.0, 159.0, last=2)
    assert due(100.0, 160.0, last=2)
    assert due(100.0, 110.0, last=1)
    assert not due(100.0, 109.0, last=1)


@pytest.mark.parametrize(
    ("report", "busy", "word"),
    [
        (ReplicaReport(compute_seconds=9.5, push_seconds=0.5), 0.1, "Computing"),
        (ReplicaReport(compute_seconds=8.7, fetch_seconds=1.3), 0.95, "Computing: the replicas"),
        (ReplicaReport(compute_seconds=7.4, data_seconds=2.6), 0.1, "Data"),
        (ReplicaReport(compute_seconds=5, data_seconds=5), 1.0, "Data"),
        (ReplicaReport(compute_seconds=5, push_seconds=5), 0.2, "Push"),
        (ReplicaReport(compute_seconds=5, fetch_seconds=5), 0.2, "Fetch"),
        (ReplicaReport(compute_seconds=5, fetch_seconds=5), 0.95, "The shards"),
    ],
)
def test_the_limit_is_named(report: ReplicaReport, busy: float, word: str) -> None:
    assert status.limit(status.time_shares([report]), busy).startswith(word)


def test_staleness_buckets_are_exact_when_small_and_ordered() -> None:
    assert [staleness_bucket(value) for value in range(33)] == list(range(33))
    for value in (33, 63, 64, 1000, 2**20, 2**40):
        bucket = staleness_bucket(value)
        assert STALENESS_BOUNDS[bucket] <= value
        last = bucket + 1 == len(STALENESS_BOUNDS)
        assert last or value < STALENESS_BOUNDS[bucket + 1]


def test_quantiles_of_the_histogram() -> None:
    assert staleness_quantile((), 0.5) is None
    assert staleness_quantile((98, 1, 1), 0.5) == 0
    assert staleness_quantile((98, 1, 1), 0.99) == 1
    assert staleness_quantile((0, 0, 4), 0.5) == 2
