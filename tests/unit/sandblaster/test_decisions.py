"""What a method says of its latest evaluations."""

import itertools
from dataclasses import replace

import numpy as np

from builders.batch_problems import (
    PROBLEMS,
    RULES,
    Problem,
    Vector,
    fused,
    iterates,
    rosenbrock,
    shards_of,
)
from builders.sampled_jobs import BatchJob, regression
from disttrain.sandblaster.batch.batches import Batches
from disttrain.sandblaster.batch.driver import RUN_STATE_JSON, Driver, DriverRules
from disttrain.sandblaster.lbfgs import Lbfgs
from disttrain.sandblaster.line_search import ArmijoRules, WolfeRules
from disttrain.sandblaster.multi_batch import MultiBatch
from disttrain.sandblaster.scheme import MOST_DECISIONS, Decision, Verdict
from oracles import batch_method
from oracles.batch_method import BatchMethod

NEXT_POINT = {Verdict.ACCEPTED, Verdict.SETTLED}


def decisions_of(method: BatchMethod) -> tuple[Decision, ...]:
    return method.state.decisions


def test_every_evaluation_is_followed_by_one_verdict() -> None:
    method, engine = fused(), shards_of(PROBLEMS["softmax"])

    iterates(method, engine, 20)

    found = decisions_of(method)
    assert [one.evaluation for one in found] == list(range(1, len(engine.evaluations) + 1))
    assert [one.loss for one in found] == engine.evaluations
    assert found[0].verdict is Verdict.BEGUN
    assert sum(one.verdict in NEXT_POINT for one in found) == method.progress.iteration == 20


def test_only_the_latest_ones_are_kept_and_survive_being_written_down() -> None:
    method, engine = fused(), shards_of(rosenbrock())

    iterates(method, engine, 100)

    found = decisions_of(method)
    assert len(found) == MOST_DECISIONS < len(engine.evaluations)
    assert found[-1].evaluation == len(engine.evaluations)
    written = batch_method.STATE_JSON.write(method.state)
    assert batch_method.STATE_JSON.read(written).decisions == found


def test_where_the_loss_still_falls_the_next_trial_is_further_away() -> None:
    """And once a minimum is enclosed, inside."""
    method = fused(replace(RULES, search=WolfeRules(curvature=0.1)))

    iterates(method, shards_of(rosenbrock()), 30)

    verdicts = [one.verdict for one in decisions_of(method)]
    assert Verdict.EXTRAPOLATED in verdicts
    assert Verdict.ZOOMED in verdicts
    found = decisions_of(method)
    for one, other in itertools.pairwise(found):
        if one.verdict is Verdict.EXTRAPOLATED:
            assert other.step > one.step


def test_where_the_loss_fell_too_little_the_next_trial_is_nearer() -> None:
    method = fused(replace(RULES, search=ArmijoRules()))

    iterates(method, shards_of(rosenbrock()), 30)

    found = decisions_of(method)
    pairs = [
        (one, other) for one, other in itertools.pairwise(found) if one.verdict is Verdict.SHORTENED
    ]
    assert pairs
    assert all(0 < other.step < one.step for one, other in pairs)


def test_a_restart_and_the_end_are_told() -> None:
    def kinked(x: Vector) -> tuple[float, Vector]:
        steep = np.where(x > 0, 1.0, 1000.0)
        return float(steep @ np.abs(x)) + 0.5 * float(x @ x), steep * np.sign(x) + x

    rules = replace(RULES, search=WolfeRules(most_evaluations=5), gradient_tolerance=1e-9)
    method = fused(rules)

    iterates(method, shards_of(Problem("kinked", np.array([3.0, 2.0]), kinked)), evaluations=300)

    verdicts = [one.verdict for one in decisions_of(method)]
    assert Verdict.RESTARTED in verdicts
    assert verdicts[-1] is Verdict.ENDED


def test_each_batch_begins_with_its_own_evaluation() -> None:
    problem = regression()
    batches = Batches(seed=3, groups=problem.groups, size=7, overlap=2)
    scheme = MultiBatch(replace(RULES, search=ArmijoRules()), Lbfgs())
    job = BatchJob(problem, Driver(scheme, DriverRules(groups=problem.groups, batches=batches)))

    run_state = job.run(lambda _: len(job.points) > 5)

    run_state = RUN_STATE_JSON.read(RUN_STATE_JSON.write(run_state))
    verdicts = [one.verdict for one in run_state.method.decisions]
    begun = [place for place, verdict in enumerate(verdicts) if verdict is Verdict.BEGUN]
    assert all(verdicts[place - 1] in NEXT_POINT for place in begun[1:])
    assert len(begun) >= 5
