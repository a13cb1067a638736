"""A job in virtual time: its numbers are those of training, its seconds those of the machines."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch.optim import SGD
from torch.utils.data import Dataset

from builders.simulated_jobs import SAMPLES, SGD_ALONE, a_setting
from disttrain import Split
from disttrain.simulation.evaluations import Result
from disttrain.simulation.machines import SHARD_BYTES_PER_SECOND, Machines
from disttrain.simulation.run import SimulatedRun
from disttrain.simulation.setting import Setting
from disttrain.state.vector import PARAMETERS
from oracles import serial
from oracles.serial import Course
from tasks.counting import NumberedSources
from tasks.proving import Proving

STEP = Machines(step_seconds=0.1, latency_seconds=0.0001)


def simulated(
    setting: Setting, replicas: int, machines: Machines = STEP, every: int = SAMPLES
) -> Result:
    return SimulatedRun(setting, machines, replicas, every).run()


def test_one_replica_that_waits_trains_the_bits_of_a_plain_loop() -> None:
    run = SimulatedRun(a_setting(), STEP, 1, SAMPLES)
    result = run.run()

    model = serial.plain_loop(Course(task=Proving()), partial(SGD, lr=0.05))
    wanted = torch.cat([each.detach().flatten() for each in model.parameters()])
    (found,) = [value for vector, value in run.values().items() if vector.name == PARAMETERS]
    assert torch.equal(found, wanted)
    assert result.samples == 2 * SAMPLES
    assert result.staleness == {0: 3 * 200}, "each push at each shard"


def test_the_same_seed_gives_the_same_run_and_another_one_does_not() -> None:
    uneven = Machines(step_seconds=0.1, jitter=0.2, bytes_per_second=1e6)
    strategy = {"downpour": {"optimizer": {"sgd": {"learningRate": 0.05}}}}

    def run(seed: int) -> Result:
        return simulated(a_setting(strategy=strategy, seed=seed), 4, uneven)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_every_sample_is_trained_once_an_epoch_whoever_does_it() -> None:
    run = SimulatedRun(a_setting(), STEP, 5, SAMPLES)
    assert run.run().samples == 2 * SAMPLES
    assert run.data.epochs_done == 2
    assert (run.data.samples_done, run.data.samples_repeated) == (2 * SAMPLES, 0)


def test_steps_take_their_seconds_and_waiting_the_others() -> None:
    run = SimulatedRun(a_setting(), STEP, 1, SAMPLES)
    result = run.run()
    assert 200 * 0.1 < result.seconds < 200 * 0.1 + 200 * 0.002
    assert result.computing == pytest.approx(200 * 0.1 / result.seconds)


def test_bytes_take_the_seconds_of_the_slowest_link() -> None:
    """One shard: each step pushes and fetches all parameters over one link of either side."""
    setting, speed = a_setting(parameterServer={"shards": 1}), 20_000.0
    elements = sum(each.numel() for each in Proving().model().parameters())
    quick = simulated(setting, 1)
    slow = simulated(setting, 1, Machines(step_seconds=0.1, bytes_per_second=speed))

    assert slow.nbytes == quick.nbytes == 4 * elements * (200 + 201), "and the first parameters"
    by_hand = slow.nbytes / speed
    assert slow.seconds - quick.seconds == pytest.approx(by_hand, rel=0.05)
    assert slow.computing < quick.computing
    assert 100 * speed < SHARD_BYTES_PER_SECOND, "the shard's own work is of no weight here"


def test_replicas_that_share_a_shards_link_wait_for_each_other() -> None:
    setting = a_setting(parameterServer={"shards": 1})
    narrow = Machines(step_seconds=0.001, bytes_per_second=20_000.0)
    one, four = simulated(setting, 1, narrow), simulated(setting, 4, narrow)
    assert four.seconds > 0.45 * one.seconds, "the link is the limit, pushes beside fetches"
    assert four.computing < 0.05


def test_local_steps_use_a_slow_network_less_and_compute_meanwhile() -> None:
    """50 ms there and back, and a line on which a push and a fetch take longer than a step."""
    slow = Machines(step_seconds=0.05, latency_seconds=0.025, bytes_per_second=100_000.0)
    own = {"localSteps": {"steps": 20, "optimizer": {"name": "SGD", "arguments": {"lr": 0.05}}}}
    stop = {"epochs": 8}
    gradients = simulated(a_setting(stop=stop), 4, slow)
    differences = simulated(a_setting(stop=stop, strategy=own), 4, slow)

    assert gradients.samples == differences.samples == 8 * SAMPLES
    assert 10 * differences.nbytes < gradients.nbytes
    assert 3 * differences.seconds < gradients.seconds
    assert differences.computing > 0.95


@pytest.mark.parametrize("adopt", ["add", "replace"])
def test_a_difference_is_as_old_as_the_fetch_that_it_is_to(adopt: str) -> None:
    """Others push once meanwhile, and its own push before is in that fetch."""
    sgd = {"name": "SGD", "arguments": {"lr": 0.01}}
    strategy = {"localSteps": {"steps": 5, "adopt": adopt, "optimizer": sgd}}
    setting = a_setting(strategy=strategy, stop={"epochs": 8})
    uneven = Machines(step_seconds=0.1, jitter=0.05)

    ages = [simulated(setting, count, uneven).staleness_at(0.5) for count in (1, 4)]

    assert ages == [0, 3]


def test_more_replicas_are_as_much_faster_and_their_gradients_as_much_older() -> None:
    strategy = {"downpour": {"optimizer": {"sgd": {"learningRate": 0.01}}}}
    setting = a_setting(strategy=strategy, stop={"epochs": 8})
    uneven = Machines(step_seconds=0.1, jitter=0.05)
    one, four = simulated(setting, 1, uneven), simulated(setting, 4, uneven)
    assert one.seconds / four.seconds == pytest.approx(4.0, rel=0.1)
    assert (one.staleness_at(0.5), four.staleness_at(0.5)) == (0, 3)


def test_a_straggler_does_less_and_nobody_waits_for_it() -> None:
    even = simulated(a_setting(stop={"samples": 1600}), 4)
    uneven = Machines(step_seconds=0.1, slower={0: 10.0})
    result = simulated(a_setting(stop={"samples": 1600}), 4, uneven)
    assert result.samples == even.samples == 1600
    assert even.seconds * 1.1 < result.seconds < even.seconds * 2.0
    assert max(result.staleness) > 2 * max(even.staleness)


def test_only_the_first_replica_works_in_a_warm_start() -> None:
    warm = {"downpour": {**SGD_ALONE["downpour"], "warmStart": {"samples": 400}}}
    quick = simulated(a_setting(), 4)
    result = simulated(a_setting(strategy=warm), 4)
    assert result.samples == quick.samples
    alone, together = 400 / 8 * 0.1, (1600 - 400) / 8 / 4 * 0.1
    assert result.seconds == pytest.approx(alone + together, rel=0.15)


def test_a_warm_start_that_is_longer_than_the_run_ends_with_it() -> None:
    warm = {"downpour": {**SGD_ALONE["downpour"], "warmStart": {"samples": 4000}}}
    result = simulated(a_setting(strategy=warm), 2)
    assert result.samples == 2 * SAMPLES
    assert result.seconds == pytest.approx(2 * SAMPLES / 8 * 0.1, rel=0.05)


def test_what_comes_after_the_target_is_not_of_the_result() -> None:
    stop = {"epochs": 50, "targetMetric": {"name": "accuracy", "atLeast": 0.6}}
    at_once = Machines(step_seconds=0.1, latency_seconds=0.0)
    for replicas in (2, 4, 8):
        result = simulated(a_setting(stop=stop), replicas, at_once, every=80)
        values = [point.measured.measures["accuracy"] >= 0.6 for point in result.points]
        assert values.index(True) == len(values) - 1


def test_a_target_ends_the_run_where_it_is_met() -> None:
    stop = {"epochs": 50, "targetMetric": {"name": "accuracy", "atLeast": 0.6}}
    result = simulated(a_setting(stop=stop), 2, every=80)
    *before, last = [point.measured.measures["accuracy"] for point in result.points]
    assert result.target_met
    assert last >= 0.6 > max(before)
    assert result.samples < 50 * SAMPLES
    assert result.seconds == result.points[-1].seconds


def test_a_target_that_is_not_met_is_told() -> None:
    stop = {"epochs": 1, "targetMetric": {"name": "accuracy", "atLeast": 1.0}}
    result = simulated(a_setting(stop=stop), 2)
    assert (result.target_met, result.samples) == (False, SAMPLES)


def test_seconds_end_the_run_by_virtual_time() -> None:
    result = simulated(a_setting(stop={"seconds": 5.0}), 2)
    assert result.seconds == pytest.approx(5.0, abs=0.2)
    assert result.target_met is None
    assert result.samples == pytest.approx(2 * 8 * 50, abs=32)


def test_patience_ends_the_run() -> None:
    patience = {"evaluations": 2, "minimumImprovement": 1000.0}
    result = simulated(a_setting(stop={"epochs": 50, "patience": patience}), 2, every=80)
    assert len(result.points) == 3


def test_a_mistake_of_the_task_ends_the_simulation_with_its_name() -> None:
    class Wrong(Proving):
        def loss(self, model: Any, batch: Any) -> Any:
            return super().loss(model, batch) if batch[1].shape[0] != 8 else 1 // 0

    with pytest.raises(Exception, match=r"Wrong.loss\(\)"):
        simulated(a_setting(Wrong()), 2)


class InOrder(Proving):
    """The same samples, in sources that are read in order."""

    def dataset(self, split: Split) -> Dataset[Any]:
        return Taken(super().dataset(split))


class Taken(NumberedSources):
    def __init__(self, whole: Any) -> None:
        super().__init__((100, 0, len(whole) - 100))
        self._whole = whole

    def read(self, source: int, first: int) -> Iterator[Any]:
        return (self._whole[number] for number in super().read(source, first))


def test_sources_are_read_in_order_by_each_of_several_replicas() -> None:
    run = SimulatedRun(a_setting(InOrder()), STEP, 3, SAMPLES)
    assert run.run().samples == 2 * SAMPLES
    assert (run.data.samples_done, run.data.samples_repeated) == (2 * SAMPLES, 0)
