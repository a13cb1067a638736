"""L-BFGS on batches smaller than the data: the arithmetic is the paper's, on any shards."""

from dataclasses import replace

import numpy as np
import pytest

from builders.batch_problems import RULES, Vector
from builders.sampled_jobs import BatchJob, Regression, regression
from disttrain.sandblaster.batch.batches import Batch, Batches, Run
from disttrain.sandblaster.batch.driver import RUN_STATE_JSON, Driver, DriverRules, RunState, Stage
from disttrain.sandblaster.descent import Descent
from disttrain.sandblaster.lbfgs import Lbfgs, WeakPairs, slots
from disttrain.sandblaster.line_search import ArmijoRules, SearchRules, WolfeRules
from disttrain.sandblaster.method import End, Part
from disttrain.sandblaster.multi_batch import MultiBatch
from oracles.serial_multi_batch import SerialMultiBatch

ITERATIONS = 30
SEARCHES: dict[str, SearchRules] = {"armijo": ArmijoRules(), "wolfe": WolfeRules()}


def batches_of(problem: Regression, size: int = 7, overlap: int = 2) -> Batches:
    return Batches(seed=3, groups=problem.groups, size=size, overlap=overlap)


def a_driver(
    problem: Regression,
    search: SearchRules = SEARCHES["armijo"],
    weak_pairs: WeakPairs = WeakPairs.DAMP,
    tolerance: float = 0.0,
    batches: Batches | None = None,
    history: int = 5,
) -> Driver:
    directions = Lbfgs(history=history, weak_pairs=weak_pairs)
    rules = replace(RULES, search=search, gradient_tolerance=tolerance)
    return Driver(
        MultiBatch(rules, directions),
        DriverRules(groups=problem.groups, batches=batches or batches_of(problem)),
    )


def largest_difference(points: list[Vector], reference: list[Vector]) -> float:
    pairs = zip(points[1:], reference[1:], strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def sharded(problem: Regression, driver: Driver, shards: int = 1) -> list[Vector]:
    """The accepted points of thirty iterations."""
    job = BatchJob(problem, driver, shards)
    job.run(lambda _: len(job.points) > ITERATIONS)
    return job.points


@pytest.mark.parametrize("weak_pairs", WeakPairs)
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES.keys())
@pytest.mark.parametrize("ripples", [0.0, 0.2], ids=["convex", "with ripples"])
def test_thirty_iterates_are_those_of_the_serial_method(
    search: SearchRules, weak_pairs: WeakPairs, ripples: float
) -> None:
    problem = replace(regression(), ripples=ripples)
    serial = SerialMultiBatch(problem, batches_of(problem), search, weak_pairs=weak_pairs)
    reference = serial.points(ITERATIONS)

    for shards in (1, 2, 3):
        points = sharded(problem, a_driver(problem, search, weak_pairs), shards)

        assert largest_difference(points, reference) < 1e-10, f"{shards} shards"


def test_with_ripples_some_pairs_are_damped() -> None:
    """Else the test before says nothing about them."""
    problem = replace(regression(), ripples=0.2)
    damped, skipped = (
        SerialMultiBatch(problem, batches_of(problem), ArmijoRules(), weak_pairs=weak_pairs)
        for weak_pairs in (WeakPairs.DAMP, WeakPairs.SKIP)
    )

    assert largest_difference(damped.points(ITERATIONS), skipped.points(ITERATIONS)) > 1e-3


def test_damping_keeps_pairs_that_would_be_forgotten() -> None:
    """From the first good one on; before there is one, nothing is expected of a step."""
    problem, kept = replace(regression(), ripples=0.2), {}
    for weak_pairs in WeakPairs:
        job = BatchJob(problem, a_driver(problem, weak_pairs=weak_pairs, history=40))
        run_state = job.run(lambda run_state: run_state.method.progress.iteration >= ITERATIONS)
        kept[weak_pairs] = len(slots(run_state.method.products))

    assert kept[WeakPairs.SKIP] < kept[WeakPairs.DAMP]


def test_groups_of_different_sizes_count_by_their_samples() -> None:
    problem = regression(samples=395, group_samples=20)
    reference = SerialMultiBatch(problem, batches_of(problem), ArmijoRules()).points(ITERATIONS)

    points = sharded(problem, a_driver(problem), 2)

    assert largest_difference(points, reference) < 1e-10


def test_a_change_across_different_data_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overlap at the new point is of other groups than the one at the old point."""
    honest = Batch.runs

    def mixed_up(self: Batch, part: Part) -> tuple[Run, ...]:
        *others, middle, overlap = honest(self, part)
        if part is Part.WHOLE:
            return (*others, middle, overlap)
        groups = middle.groups + overlap.groups
        cut = len(overlap.groups)
        return replace(middle, groups=groups[cut:]), replace(overlap, groups=groups[:cut])

    problem = regression()
    reference = SerialMultiBatch(problem, batches_of(problem), ArmijoRules()).points(ITERATIONS)
    monkeypatch.setattr(Batch, "runs", mixed_up)

    points = sharded(problem, a_driver(problem))

    assert largest_difference(points, reference) > 1e-3


def test_what_the_batch_before_shares_is_not_evaluated_again() -> None:
    problem = regression()
    batches, job = batches_of(problem), BatchJob(problem, a_driver(problem))

    job.run(lambda _: len(job.points) > 5)

    begun = [one for one in job.evaluated if len(one) < batches.size]
    for number, groups in enumerate(begun, start=1):
        batch = batches.batch(number)
        assert groups == batch.middle + batch.after
    assert len(begun) >= 5
    assert job.run_state.samples == 20 * sum(map(len, job.evaluated))


def test_a_line_search_stays_on_its_batch() -> None:
    problem = regression()
    batches, job = (
        batches_of(problem),
        BatchJob(problem, a_driver(problem, WolfeRules(curvature=0.1))),
    )

    job.run(lambda _: len(job.points) > 8)

    number = 0
    for groups in job.evaluated[1:]:
        batch = batches.batch(number)
        if groups == batch.before + batch.middle + batch.after:
            continue
        number += 1
        assert groups == batches.batch(number).middle + batches.batch(number).after
    assert number >= 8


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_the_bits_do_not_depend_on_who_computes_what(replicas: int) -> None:
    problem = regression(samples=200)
    batches = batches_of(problem, size=5, overlap=1)
    lone = BatchJob(problem, a_driver(problem, batches=batches), shards=2)
    lone.run(lambda _: len(lone.points) > 10)

    team = BatchJob(
        problem, a_driver(problem, batches=batches), shards=2, replicas=replicas, seed=replicas
    )
    team.run(lambda _: len(team.points) > 10)

    assert [x.tobytes() for x in team.points] == [x.tobytes() for x in lone.points]


def test_a_course_goes_on_after_it_was_written_down() -> None:
    problem = regression()
    job = BatchJob(problem, a_driver(problem))

    def through_json(run_state: RunState) -> bool:
        written = RUN_STATE_JSON.write(run_state)
        job.run_state = RUN_STATE_JSON.read(written)
        assert RUN_STATE_JSON.write(job.run_state) == written
        return len(job.points) > 12

    job.run(through_json)
    reference = sharded(problem, a_driver(problem))

    assert job.points[-1].tobytes() == reference[len(job.points) - 1].tobytes()


def test_one_batch_without_a_gradient_is_no_reason_to_end() -> None:
    """All are needed in a row; meanwhile the point stays, and its overlap need not be computed."""
    problem = regression()
    job = BatchJob(problem, a_driver(problem, tolerance=1e9))

    run_state = job.run()

    assert run_state.stage is Stage.DONE
    assert run_state.method.progress.end is End.GRADIENT
    assert run_state.method.progress.iteration == 0
    sizes = [len(groups) for groups in job.evaluated]
    assert sizes == [7, 5, 5, 5, 5]


def test_a_few_passes_lead_nearer_to_the_minimum_in_batches_than_at_once() -> None:
    """And further ones do not lead away again, though each step is for other data."""
    problem = regression(samples=2000, group_samples=20)
    at_once = Driver(Descent(RULES, Lbfgs()), DriverRules(groups=problem.groups))
    best = BatchJob(problem, at_once)
    best.run(lambda run_state: run_state.method.progress.iteration > 40)
    least = problem.mean_loss(best.points[-1])

    def after(driver: Driver, passes: int) -> float:
        job = BatchJob(problem, driver)
        job.run(lambda run_state: run_state.samples >= passes * 2000)
        return problem.mean_loss(job.points[-1]) - least

    in_batches = a_driver(problem, batches=batches_of(problem, size=20, overlap=4))

    assert 0 < after(in_batches, 2) < after(at_once, 2) / 5
    assert 0 < after(in_batches, 12) < after(at_once, 2) / 5
