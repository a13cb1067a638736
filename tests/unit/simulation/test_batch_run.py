"""A batch method in virtual time: production's bits, and the seconds of the machines."""

from typing import Any

import pytest
import torch

from disttrain.job.spec import DistTrainJob
from disttrain.replica.task_calls import TaskCalls
from disttrain.simulation import runs
from disttrain.simulation.batch_run import SimulatedBatchRun
from disttrain.simulation.course import Course
from disttrain.simulation.errors import NotSimulated
from disttrain.simulation.evaluations import Result
from disttrain.simulation.machines import Machines
from disttrain.simulation.setting import Setting, prepare
from disttrain.state.vector import PARAMETERS
from tasks.proving import Proving

SAMPLES, PORTION, OF_A_GROUP = 800, 40, 2
GROUPS = 10
STEP = Machines(step_seconds=0.1, latency_seconds=0.0001)


def a_setting(stop: Any = None, **method: Any) -> Setting:
    own = {"portionSize": PORTION, "pushEveryPortions": OF_A_GROUP, "optimizer": {"lbfgs": {}}}
    job = DistTrainJob.model_validate(
        {
            "apiVersion": "disttrain.dev/v1alpha1",
            "kind": "DistTrainJob",
            "metadata": {"name": "proving"},
            "spec": {
                "task": {"entrypoint": "proving:Proving"},
                "strategy": {"sandblaster": {**own, **method}},
                "stop": stop or {"iterations": 2},
                "evaluation": None,
                "parameterServer": {"shards": 3},
                "replicas": {"count": 1, "device": "cpu"},
            },
        }
    )
    return prepare(job, TaskCalls(Proving()))


def simulated(setting: Setting, replicas: int, machines: Machines = STEP) -> Result:
    return runs.maker(setting, machines, SAMPLES)(replicas).run()


def values_after(setting: Setting, replicas: int) -> torch.Tensor:
    course = Course(setting)
    SimulatedBatchRun(setting, STEP, replicas, SAMPLES, course).run()
    (found,) = [value for name, value in course.values().items() if name.name == PARAMETERS]
    return found


def test_the_model_has_the_same_bits_with_any_number_of_replicas() -> None:
    setting = a_setting()
    first = values_after(setting, 1)
    assert torch.equal(first, values_after(setting, 7))
    assert not torch.equal(first, values_after(a_setting({"iterations": 1}), 1))


def test_a_course_that_is_known_is_said_again() -> None:
    setting = a_setting({"iterations": 2})
    make = runs.maker(setting, STEP, SAMPLES)
    again = [make(count).run() for count in (1, 4)]
    alone = [simulated(setting, count) for count in (1, 4)]
    assert again == alone


def test_a_limit_of_seconds_is_reached_by_each_number_of_replicas() -> None:
    make = runs.maker(a_setting({"seconds": 8.0}), STEP, SAMPLES)
    one, four = make(1).run(), make(4).run()
    assert one.seconds == pytest.approx(8.0, abs=2.5)
    assert four.samples > 2 * one.samples


def test_steps_take_their_seconds_on_so_many_machines() -> None:
    """With copies a replica may be at one that nobody needs when the next evaluation begins."""
    setting = a_setting(backupTasks={"enabled": False})
    one, five = simulated(setting, 1), simulated(setting, 5)
    portions = one.samples / PORTION
    assert one.samples == five.samples
    assert one.seconds == pytest.approx(0.1 * portions, rel=0.02)
    assert five.seconds == pytest.approx(0.1 * portions / 5, rel=0.02)
    assert one.computing > 0.98


def test_more_replicas_than_groups_are_not_faster() -> None:
    setting = a_setting(backupTasks={"enabled": False})
    found, more = simulated(setting, GROUPS), simulated(setting, 2000)
    assert more.seconds == pytest.approx(found.seconds)
    assert more.groups == GROUPS
    assert more.nbytes == found.nbytes


def test_the_slowest_replica_holds_up_all_unless_there_are_copies() -> None:
    slow = Machines(step_seconds=0.1, latency_seconds=0.0001, slower={0: 20.0})
    even = simulated(a_setting(), 5)
    alone = simulated(a_setting(backupTasks={"enabled": False}), 5, slow)
    copied = simulated(a_setting(), 5, slow)
    assert alone.seconds > 2 * even.seconds
    assert copied.seconds < 0.6 * alone.seconds
    assert copied.samples == even.samples


def test_bytes_take_the_seconds_of_a_shards_link() -> None:
    setting = a_setting(backupTasks={"enabled": False})
    quick = simulated(setting, GROUPS)
    narrow = Machines(step_seconds=0.1, latency_seconds=0.0001, bytes_per_second=2_000.0)
    slow = simulated(setting, GROUPS, narrow)
    assert slow.nbytes == quick.nbytes
    assert slow.seconds > slow.nbytes / 2 / 3 / 2_000.0, "a third of what is pushed or fetched"
    assert slow.computing < quick.computing


def test_a_target_ends_the_run_where_it_is_met() -> None:
    target = {"name": "accuracy", "atLeast": 0.6}
    result = simulated(a_setting({"iterations": 50, "targetMetric": target}), 4)
    *before, last = [point.measured.measures["accuracy"] for point in result.points]
    assert result.target_met
    assert last >= 0.6 > max(before)
    assert result.seconds == result.points[-1].seconds
    assert not result.staleness


def test_batches_of_a_part_of_the_data_are_simulated() -> None:
    result = simulated(a_setting(batchSize=320), 4)
    assert result.groups is not None
    assert result.groups < GROUPS


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"batchSize": 800}, r"spec.strategy.sandblaster.batchSize: batches of 10 groups"),
        (
            {"warmStart": {"samples": 80, "batchSize": 8, "sgd": {"learningRate": 0.1}}},
            r"spec.strategy.sandblaster.warmStart: .* as a job of its own",
        ),
    ],
)
def test_what_is_not_simulated_is_named_with_its_field(method: Any, message: str) -> None:
    with pytest.raises(NotSimulated, match=message):
        runs.maker(a_setting(**method), STEP, SAMPLES)


def test_each_evaluation_begins_with_a_fetch_of_its_point() -> None:
    found = simulated(a_setting({"iterations": 1}), 1)
    elements = sum(each.numel() for each in Proving().model().parameters())
    evaluations = found.samples // SAMPLES
    assert evaluations > 1
    assert found.nbytes == 4 * elements * evaluations * (1 + GROUPS), "and a push for each group"
