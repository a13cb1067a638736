"""Jobs with a batch method to which nothing happens, or one thing at a moment that is chosen."""

from dataclasses import dataclass, replace

import pytest

from disttrain.coordinator.journal.job_entries import EvaluationEnded
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import Phase, StopReason
from disttrain.sandblaster.batch.driver import Stage
from disttrain.transport.header import Role
from simulation import truth
from simulation.chaos import Chaos, Plan
from simulation.jobs import Kind
from simulation.world import Incarnation, accuracy

GROUPS = 7
SEED = 1


def a_job(*more: str, stop_at: float | None = None) -> Chaos:
    """Two shards and two replicas, to which nothing happens; each point is measured."""
    more = ("spec.replicas.count=2", "spec.evaluation.everySeconds=0.01", *more)
    return Chaos(Plan(seed=SEED, kind=Kind.BATCHES, is_quiet=True, stop_at=stop_at, more=more))


def measured(run: Chaos) -> list[float]:
    """One point after another."""
    entries = run.coordinator.entries()
    ended = [entry.evaluation for entry in entries if isinstance(entry, EvaluationEnded)]
    return [evaluation.measures["accuracy"] for evaluation in ended]


@pytest.fixture(scope="module")
def quiet() -> Chaos:
    """An undisturbed job."""
    return a_job().run()


def test_an_undisturbed_job_has_the_bits_of_a_serial_run(quiet: Chaos) -> None:
    assert truth.violations(quiet) == []
    assert quiet.coordinator.state.reason == StopReason.CONVERGED
    assert quiet.coordinator.state.batch is not None
    assert quiet.coordinator.state.batch.returns == 0


def test_what_is_measured_are_the_points_one_after_another(quiet: Chaos) -> None:
    points = truth.undisturbed(quiet).points
    expected = [accuracy(point) for point in points[1:]]

    assert measured(quiet) == pytest.approx(expected)

    early = a_job("spec.stop.iterations=3").run()
    assert early.coordinator.state.reason == StopReason.ITERATIONS
    assert early.exported.tobytes() == points[3].tobytes()


@pytest.mark.parametrize("after", [0.6, 1.1, 2.0, 2.7])
def test_a_job_that_was_stopped_goes_on_to_the_same_bits(after: float, quiet: Chaos) -> None:
    def resumed(stopped: Chaos) -> Chaos:
        assert stopped.coordinator.state.phase is Phase.STOPPED
        return Chaos(replace(stopped.plan, stop_at=None), stopped).run()

    run = a_job(stop_at=after).run(resumed)

    assert run.coordinator.state.phase is Phase.COMPLETE
    assert run.exported.tobytes() == quiet.exported.tobytes()


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """Of a course, in its fourth iteration."""

    stage: Stage
    answers: int = 0
    """Shards that have carried out the command."""
    groups: int = 0
    """Groups with a result."""

    def is_now(self, state: State) -> bool:
        found = state.batch
        if found is None or found.course.method.progress.iteration < 3:
            return False
        course = found.course
        seen = (course.stage, len(course.answers), len(course.evaluation.winners))
        return found.sent and seen == (self.stage, self.answers, self.groups)


@pytest.mark.parametrize(
    "moment",
    [
        Moment(stage=Stage.PREPARING),
        Moment(stage=Stage.PREPARING, answers=1),
        Moment(stage=Stage.COMPUTING, answers=2),
        Moment(stage=Stage.COMPUTING, answers=2, groups=GROUPS - 1),
        Moment(stage=Stage.MEASURING, groups=GROUPS),
        Moment(stage=Stage.MEASURING, answers=1, groups=GROUPS),
    ],
    ids=str,
)
@pytest.mark.parametrize("victim", [Role.COORDINATOR, Role.SHARD, Role.REPLICA])
def test_each_may_die_in_each_phase_of_an_evaluation(
    victim: Role, moment: Moment, quiet: Chaos
) -> None:
    run = a_job()

    def strike(coordinator: Incarnation) -> None:
        if victim is Role.COORDINATOR:
            coordinator.die()
        run.members[f"{victim.name.lower()}-0"].kill()

    run.at(moment.is_now, strike)
    run.run()

    assert run.has_acted
    assert run.coordinator.state.phase is Phase.COMPLETE
    assert run.exported.tobytes() == quiet.exported.tobytes()
    assert run.coordinator.state.batch is not None
    assert run.coordinator.state.batch.returns == (victim is Role.SHARD)
