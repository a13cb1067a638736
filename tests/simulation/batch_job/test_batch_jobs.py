"""Whole jobs with a batch method through the coordinator's machine: the bits of a serial run."""

import pytest

from disttrain.coordinator.journal import entries, state
from disttrain.coordinator.journal.state import Phase, StopReason
from disttrain.job.stop import Stop
from disttrain.sandblaster.batch.driver import Stage
from disttrain.transport.header import Role
from simulation.batch_job import runs
from simulation.batch_job.processes import World
from simulation.batch_job.runs import Moment
from simulation.sandblaster import problem

BLOCK = 10


@pytest.fixture(scope="module")
def quiet() -> World:
    """An undisturbed job."""
    return runs.run(1, is_quiet=True)


def test_an_undisturbed_job_has_the_bits_of_a_serial_run(quiet: World) -> None:
    assert quiet.phase is Phase.COMPLETE
    assert quiet.coordinator is not None
    assert quiet.coordinator.state.reason == StopReason.CONVERGED
    assert runs.final(quiet) == runs.truth()


def test_what_is_measured_are_the_points_one_after_another(quiet: World) -> None:
    assert len(set(quiet.measured)) == len(quiet.measured) > 5

    early = runs.run(1, is_quiet=True, stop=Stop(iterations=3))

    assert early.coordinator is not None
    assert early.coordinator.state.reason == StopReason.ITERATIONS
    assert runs.final(early) == quiet.measured[2]


def test_the_journal_says_everything(quiet: World) -> None:
    found = state.from_json(quiet.first_state)
    for line in quiet.journal:
        entries.fold(found, entries.from_json(line))

    assert quiet.coordinator is not None
    live = quiet.coordinator.state
    live.ledger_time = None
    assert state.to_json(found) == state.to_json(live)


@pytest.mark.parametrize("after", [0.3, 1.1, 2.0, 2.7])
def test_a_job_that_was_stopped_goes_on_to_the_same_bits(after: float, quiet: World) -> None:
    stopped = runs.stopped(after)
    assert stopped.phase is Phase.STOPPED

    resumed = runs.resumed(stopped) if stopped.checkpoints else runs.run(1, is_quiet=True)

    assert resumed.phase is Phase.COMPLETE
    assert runs.final(resumed) == runs.final(quiet)


@pytest.mark.parametrize(
    "moment",
    [
        Moment(stage=Stage.PREPARING),
        Moment(stage=Stage.PREPARING, answers=1),
        Moment(stage=Stage.COMPUTING, answers=2),
        Moment(stage=Stage.COMPUTING, answers=2, groups=problem.GROUPS - 1),
        Moment(stage=Stage.MEASURING, groups=problem.GROUPS),
        Moment(stage=Stage.MEASURING, answers=1, groups=problem.GROUPS),
    ],
    ids=str,
)
@pytest.mark.parametrize("victim", [Role.COORDINATOR, Role.SHARD, Role.REPLICA])
def test_each_may_die_in_each_phase_of_an_evaluation(
    victim: Role, moment: Moment, quiet: World
) -> None:
    world = runs.killed(victim, moment)

    assert world.phase is Phase.COMPLETE
    assert runs.final(world) == runs.final(quiet)
    assert world.coordinator is not None
    assert world.coordinator.state.batch is not None
    assert world.coordinator.state.batch.returns == (victim is Role.SHARD)


@pytest.mark.parametrize("block", range(6))
def test_every_process_may_die_or_sleep_at_any_time(block: int, quiet: World) -> None:
    points = {problem.START.tobytes(), *quiet.measured, runs.truth()}
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        world = runs.run(seed)
        assert world.phase is Phase.COMPLETE, f"seed {seed}"
        assert runs.final(world) == runs.truth(), f"seed {seed}"
        assert world.taken() <= points, f"seed {seed}"


@pytest.mark.parametrize("block", range(2))
def test_so_it_is_with_batches_that_are_smaller_than_the_data(block: int) -> None:
    truth = runs.truth(runs.SMALL_BATCHES)
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        world = runs.run(seed, rules=runs.SMALL_BATCHES)
        assert world.phase is Phase.COMPLETE, f"seed {seed}"
        assert runs.final(world) == truth, f"seed {seed}"
