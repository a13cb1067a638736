"""The manifest of a job with a batch method."""

import pytest

from builders.jobs import BATCH, a_batch_job, a_job, complaints, edited
from disttrain.coordinator import strategies
from disttrain.coordinator.strategies.sandblaster import BatchMethod
from disttrain.job import defaults
from disttrain.job.strategies.sandblaster import Armijo, ConjugateGradient, Lbfgs, Sandblaster
from disttrain.job.strategy_kind import Precision
from disttrain.sandblaster.operations import FETCHABLE

_WARM_START = "spec.strategy.sandblaster.warmStart"
_PRECISE = "spec.strategy.sandblaster.precision=float64"


def test_the_short_form_is_lbfgs_with_strong_wolfe_over_all_data() -> None:
    found = a_batch_job().spec.strategy.rule
    assert isinstance(found, Sandblaster)
    assert (found.batch_size, found.precision) == ("all", Precision.FLOAT32)
    assert isinstance(found.optimizer.rule, Lbfgs)
    assert found.optimizer.rule.history == 10
    assert found.optimizer.rule.line_search is None


def test_method_and_line_search_are_chosen() -> None:
    method = "spec.strategy.sandblaster.optimizer={conjugateGradient: {lineSearch: {armijo: {}}}}"
    found = a_batch_job(method).spec.strategy.sandblaster.optimizer.rule
    assert isinstance(found, ConjugateGradient)
    assert found.line_search is not None
    assert isinstance(found.line_search.rule, Armijo)


def test_a_portion_is_what_a_replica_computes_at_once() -> None:
    spec = a_batch_job("spec.strategy.sandblaster.portionSize=20").spec
    assert defaults.samples_per_step(spec) == 20
    assert strategies.stages(spec)[-1].settings.portion_size == 20
    assert defaults.samples_per_step(a_job().spec) == 32


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("spec.batchSize=32", "spec.batchSize: is not for sandblaster, got 32; set "),
        ("spec.portionSize=32", "spec.portionSize: is not for sandblaster, got 32; set "),
        ("spec.stop.steps=3", "spec.stop.steps: is not for sandblaster, got 3; set "),
        ("spec.record=true", "spec.record: must be false with sandblaster"),
        ("spec.strategy.sandblaster.batchSize=0", "batchSize: must be all or a whole number of"),
        (
            "spec.strategy.sandblaster.batchSize=most",
            "at least 1 and at most 1000000000000000, got most",
        ),
        ("spec.strategy.sandblaster.batchSize=2048", "must make at least 3 groups of portionSize"),
        ("spec.strategy.sandblaster.batchSize=2048", "= 1024 samples: more than 2048, got 2048"),
        ("spec.strategy.sandblaster.precision=float16", "got 'float16' (text)"),
        ("spec.strategy.sandblaster.optimizer={lbfgs: null}", "a section of defaults is lbfgs: {}"),
        ("spec.strategy.sandblaster.optimizer.lbfgs.history=0", "history: must be at least 1"),
        ("spec.strategy.sandblaster.portionSize=0", "portionSize: must be at least 1, got 0"),
        ("spec.strategy.sandblaster.portionSize=9000000000000000", "must be at most 1000000000000"),
        ("spec.strategy.sandblaster.batchSize=9000000000000000", "got 9000000000000000"),
        (
            "spec.strategy.sandblaster.warmStart={samples: 9, batchSize: 3}",
            "warmStart: must have exactly one of downpour, sgd, got none of them",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(assignment: str, said: str) -> None:
    (finding,) = complaints(BATCH, assignment)
    assert said in finding
    assert "did you mean" not in finding


def test_downpour_has_no_iterations() -> None:
    (finding,) = complaints(edited("epochs: 1", "iterations: 1"))
    assert "spec.stop.iterations: is for sandblaster, got 1" in finding


def test_a_target_may_be_missed_for_the_method_ends_anyway() -> None:
    target = "spec.stop={targetMetric: {name: loss, atMost: 0.1}}"
    assert complaints(BATCH, target) == []


def test_a_batch_may_be_smaller_than_the_data() -> None:
    found = a_batch_job("spec.strategy.sandblaster.batchSize=2049").spec.strategy.rule
    assert isinstance(found, Sandblaster)
    assert found.batch_size == 2049


def test_small_batches_are_for_lbfgs() -> None:
    (finding,) = complaints(
        BATCH,
        "spec.strategy.sandblaster.batchSize=4096",
        "spec.strategy.sandblaster.optimizer={gradientDescent: {}}",
    )
    assert "batchSize: must be all for every optimizer but lbfgs, got 4096" in finding


def test_a_warm_start_is_a_job_of_downpour_until_its_samples_are_processed() -> None:
    said = "{samples: 100, batchSize: 5, downpour: {fetchEvery: 2, optimizer: {momentum: "
    spec = a_batch_job(f"{_WARM_START}={said}{{learningRate: 1}}}}}}}}", _PRECISE).spec

    first = defaults.first_stage(spec)
    assert first.strategy.downpour is not None
    assert (first.strategy.downpour.fetch_every, first.batch_size) == (2, 5)
    assert (first.stop.samples, first.stop.iterations) == (100, None)

    begun, last = strategies.stages(spec)
    assert begun.settings.batch_size == 5
    assert begun.settings.batch_size_field == f"{_WARM_START}.batchSize"
    assert isinstance(last, BatchMethod)
    assert last.rules.warm_start is None
    assert last.settings.stop.iterations == 10
    assert begun.settings.kept == last.settings.kept == ("momentum", *FETCHABLE)


def test_plain_sgd_is_downpour_of_one_replica_that_waits() -> None:
    spec = a_batch_job(
        f"{_WARM_START}={{samples: 100, batchSize: 5, sgd: {{learningRate: 1}}}}"
    ).spec

    found = defaults.first_stage(spec).strategy.downpour
    assert found is not None
    assert found.max_in_flight == 0
    assert found.warm_start_samples == 100


def test_without_a_warm_start_the_first_stage_is_the_whole_job() -> None:
    spec = a_batch_job().spec
    assert defaults.first_stage(spec) is spec
    assert len(strategies.stages(spec)) == 1


@pytest.mark.parametrize(
    ("stage", "place"),
    [
        ("downpour: {{optimizer: {{momentum: {}}}}}", "downpour.optimizer.momentum"),
        ("sgd: {}", "sgd"),
    ],
)
def test_a_schedule_that_does_not_fit_is_named_where_the_warm_start_has_it(
    stage: str, place: str
) -> None:
    def warm(length: str) -> str:
        rule = f"{{learningRate: 1, schedule: {{warmup: {length}, linear: {{}}}}}}"
        return f"{_WARM_START}={{samples: 100, batchSize: 5, {stage.format(rule)}}}"

    (finding,) = complaints(BATCH, warm("{samples: 100}"))
    assert f"spec.strategy: sandblaster.warmStart.{place}.schedule.warmup is 100 " in finding
    begun, _ = strategies.stages(a_batch_job(warm("{epochs: 2}")).spec)
    problem = begun.settings.problem_with_data(50)
    assert problem is not None
    assert problem.startswith(f"{_WARM_START}.{place}.schedule.warmup is 2 epochs, ")
    assert begun.settings.problem_with_data(49) is None


def test_a_job_that_stops_in_its_warm_start_is_refused() -> None:
    warm = f"{_WARM_START}={{samples: 100, batchSize: 5, sgd: {{learningRate: 1}}}}"
    (finding,) = complaints(BATCH, warm, "spec.stop.samples=100")
    assert "spec.stop.samples: must be more than strategy.sandblaster.warmStart" in finding
    assert complaints(BATCH, warm, "spec.stop.samples=101") == []


def test_a_mistake_within_the_strategy_hides_nothing_about_which_it_is() -> None:
    mistaken = BATCH.replace("spec:\n", "spec:\n  batchSize: 32\n", 1)
    said = complaints(mistaken, "spec.strategy.sandblaster.optimizer.lbfgs.history=0")
    assert any("lbfgs.history: must be at least 1" in each for each in said)
    assert any("spec.batchSize: is not for sandblaster" in each for each in said)
