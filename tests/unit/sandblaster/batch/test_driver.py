"""A coordinator's run_state through a method; the faults are in `tests/simulation/sandblaster`."""

from disttrain.sandblaster.batch import driver as driving
from disttrain.sandblaster.batch.driver import Driver, DriverRules, Stage
from disttrain.sandblaster.batch.groups import Worker
from disttrain.sandblaster.batch.programs import Performed
from disttrain.sandblaster.descent import Descent, DescentRules
from disttrain.sandblaster.lbfgs import Lbfgs
from disttrain.sandblaster.line_search import WolfeRules
from simulation import batch

ANNA = Worker(0, 1)


def a_driver() -> Driver:
    """Of seven groups."""
    rules = DescentRules(search=WolfeRules(), change_tolerance=1e-5, exact_every=3)
    return Driver(Descent(rules, Lbfgs(history=2)), DriverRules(groups=7))


def test_an_evaluation_costs_two_commands_but_for_exact_products() -> None:
    run_state = batch.serial(a_driver()).run_state

    progress = run_state.method.progress
    exact = (progress.iteration - 1) // 3  # Where it ends nothing is formed any more.

    assert run_state.order.number == 2 * progress.evaluations + exact + 1


def test_groups_are_given_out_when_every_shard_has_the_trial_point() -> None:
    driver = a_driver()
    run_state = driver.begin(1, (1, 1))
    performed = Performed(number=1, scalars=())

    driver.answered(run_state, 0, performed)
    assert driver.request_group(run_state, ANNA) is None
    driver.answered(run_state, 1, Performed(number=7, scalars=()))
    assert driver.request_group(run_state, ANNA) is None
    driver.answered(run_state, 1, performed)

    assert driver.request_group(run_state, ANNA) is not None


def test_a_new_incarnation_decides_nothing_before_all_shards_have_heard_of_it() -> None:
    driver = a_driver()
    run_state = driver.begin(1, (1, 1))
    for shard in range(2):
        driver.answered(run_state, shard, Performed(number=1, scalars=()))
    first = driver.request_group(run_state, ANNA)
    run_state = driving.RUN_STATE_JSON.read(driving.RUN_STATE_JSON.write(run_state))

    driver.taken_over(run_state, 2)
    assert run_state.stage is Stage.PREPARING
    assert driver.request_group(run_state, ANNA, holding=[1]) is None
    for shard in range(2):
        driver.answered(run_state, shard, Performed(number=1, scalars=()))
    second = driver.request_group(run_state, ANNA, holding=[1])

    assert first is not None
    assert second is not None
    assert (first.group, second.group) == (0, 1)
    assert second.number == 2 * driving.ATTEMPTS_PER_INCARNATION
