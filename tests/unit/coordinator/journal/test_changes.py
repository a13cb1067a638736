"""What another manifest at a resume means: for the data, for a batch method."""

import math

import pytest

from builders.batch_machines import RULES, BatchMachine
from builders.jobs import a_job
from disttrain.coordinator.journal import batch_entries, resume
from disttrain.coordinator.journal.resume import Effect
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.phases import Phase
from disttrain.job.strategies.sandblaster import (
    Armijo,
    BackupTasks,
    BatchOptimizer,
    BatchWarmStart,
    ConjugateGradient,
    Lbfgs,
    LineSearch,
    Sandblaster,
    StrongWolfe,
)
from disttrain.job.strategy_kind import Precision

METHOD = "optimizer.lbfgs"


def by(**fields: object) -> Sandblaster:
    return RULES.model_copy(update=fields)


def by_lbfgs(**fields: object) -> Sandblaster:
    return by(optimizer=BatchOptimizer(lbfgs=Lbfgs().model_copy(update=fields)))


@pytest.mark.parametrize(
    ("now", "field", "effect"),
    [
        (by(precision=Precision.FLOAT32), "precision", Effect.IMPOSSIBLE),
        (by(portion_size=4), "portionSize", Effect.BEGINS_AGAIN),
        (by(push_every_portions=1), "pushEveryPortions", Effect.BEGINS_AGAIN),
        (by(backup_tasks=BackupTasks(enabled=False)), "backupTasks.enabled", Effect.TAKEN_OVER),
        (
            by(optimizer=BatchOptimizer(conjugate_gradient=ConjugateGradient())),
            "optimizer",
            Effect.BEGINS_AGAIN,
        ),
        (
            by_lbfgs(line_search=LineSearch(armijo=Armijo())),
            f"{METHOD}.lineSearch",
            Effect.BEGINS_AGAIN,
        ),
        (by_lbfgs(history=3), f"{METHOD}.history", Effect.TAKEN_OVER),
        (by_lbfgs(gradient_tolerance=1.0), f"{METHOD}.gradientTolerance", Effect.TAKEN_OVER),
        (by_lbfgs(change_tolerance=1.0), f"{METHOD}.changeTolerance", Effect.TAKEN_OVER),
    ],
)
def test_each_field_has_its_effect(now: Sandblaster, field: str, effect: Effect) -> None:
    (change,) = resume.between(RULES, now)
    assert (change.field, change.effect) == (field, effect)
    assert (resume.refusal((change,)) is not None) is (effect is Effect.IMPOSSIBLE)
    said = str(change)
    assert f"spec.strategy.sandblaster.{field} was {change.before} and is {change.now}" in said


def test_a_small_batch_changes_the_line_search_that_nobody_chose() -> None:
    fields = {change.field for change in resume.between(RULES, by(batch_size=16))}
    assert fields == {"batchSize", f"{METHOD}.lineSearch"}


def test_what_is_said_in_other_words_is_the_same() -> None:
    assert resume.between(RULES, RULES.model_copy()) == ()
    chosen = by_lbfgs(line_search=LineSearch(strong_wolfe=StrongWolfe()))
    assert resume.between(RULES, chosen) == ()


def test_what_is_impossible_names_both_values_and_what_to_do() -> None:
    why = resume.refusal(resume.between(RULES, by(precision=Precision.FLOAT32)))
    assert why is not None
    assert "precision was float64 and is float32" in why
    assert why.endswith("Set float64, or begin a new run")


def begun_with(**method: object) -> Sandblaster:
    warm_start = {"samples": 9, "batchSize": 3, **method}
    return by(warm_start=BatchWarmStart.model_validate(warm_start))


BY_SGD = begun_with(sgd={"learningRate": 1.0})
BY_ADAGRAD = begun_with(downpour={"optimizer": {"adagrad": {"learningRate": 1.0}}})


@pytest.mark.parametrize(
    ("rule", "precision", "now", "said"),
    [
        ("sgd", "float64", BY_ADAGRAD, "warmStart.downpour.optimizer was sgd and is adagrad"),
        ("adagrad", "float64", BY_SGD, "warmStart.sgd was adagrad and is sgd"),
        ("adagrad", "float64", by(warm_start=None), "warmStart was adagrad and is null"),
        ("sgd", "float32", BY_SGD, "precision was float32 and is float64"),
        ("sgd", "float64", BY_SGD, None),
        ("adagrad", "float64", BY_ADAGRAD, None),
    ],
)
def test_a_warm_start_goes_on_by_the_optimizer_that_it_began_with(
    rule: str, precision: str, now: Sandblaster, said: str | None
) -> None:
    why = resume.impossible_in_warm_start(rule, Precision(precision), now)
    if said is None:
        assert why is None
    else:
        assert why is not None
        assert f"spec.strategy.sandblaster.{said}" in why


def test_every_field_of_the_strategy_is_compared() -> None:
    """Whoever adds one decides what a change of it means."""
    compared = {"precision", "batch_size", "portion_size", "push_every_portions"}
    before = {"warm_start"}
    assert set(Sandblaster.model_fields) - compared - before == {"backup_tasks", "optimizer"}
    assert set(Lbfgs.model_fields) == {
        "history", "line_search", "gradient_tolerance", "change_tolerance",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("now", "begins_again"),
    [
        (by(portion_size=4), True),
        (by(optimizer=BatchOptimizer(conjugate_gradient=ConjugateGradient())), True),
        (by_lbfgs(gradient_tolerance=1e-9), False),
    ],
)
def test_the_course_goes_on_or_begins_again_where_it_is(
    now: Sandblaster, *, begins_again: bool
) -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    machine.evaluate(first, second)
    machine.evaluate(first, second)
    before = machine.batch.course
    was, command = before.evaluation.number, before.order.number
    samples, iteration = before.samples, before.method.progress.iteration

    _change_rules(machine, now)
    run_state = machine.batch.course
    assert machine.batch.rules == now
    assert (run_state.samples, run_state.method.progress.iteration) == (samples, iteration)
    assert (run_state.method.search is None) is begins_again
    assert (run_state.evaluation.number > was) is begins_again
    assert run_state.order.number == command
    assert machine.batch.changes == ["something is different"]


def _change_rules(machine: BatchMachine, now: Sandblaster) -> None:
    groups = math.ceil(32 / (now.portion_size * now.push_every_portions))
    entry = batch_entries.RulesChanged(
        rules=now, groups=groups, changes=("something is different",)
    )
    entry.apply(machine.state)


def test_a_method_that_had_ended_goes_on_by_other_rules() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    while machine.batch.course.method.progress.end is None:
        machine.evaluate(first, second)
    assert machine.phase() is not Phase.FAILED
    command = machine.batch.course.order.number

    _change_rules(machine, by_lbfgs(gradient_tolerance=0.0))
    run_state = machine.batch.course
    assert run_state.method.progress.end is None
    assert run_state.order.number == command + 1


@pytest.mark.parametrize(
    ("samples", "seed", "refused"), [(40, 3, False), (40, 4, True), (0, 4, False)]
)
def test_data_that_were_cut_by_a_seed_are_not_cut_by_another(
    *, samples: int, seed: int, refused: bool
) -> None:
    state = State(data=DataLedger(seed=3, samples=samples))

    why = resume.impossible(state, a_job(f"spec.seed={seed}").spec)

    assert (why is not None) is refused
    if why is not None:
        assert "spec.seed was 3 and is 4" in why
        assert "Set 3, or begin a new run" in why
