"""What a replica finds out about its task before it joins."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.jobs import a_job
from disttrain.job import names
from disttrain.job.roles import Device
from disttrain.launch.config import LaunchConfig
from disttrain.replica import prepared, strategies
from disttrain.task.errors import GroupsError, MeasureError, UserCodeError
from disttrain.transport.config import TransportKind

TASK = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

import disttrain


class Measuring(disttrain.Task):
    calls = []

    def model(self):
        return nn.Linear(2, 1)

    def dataset(self, split):
        return TensorDataset(torch.ones(64, 2))

    def loss(self, model, batch):
        points = batch[0].requires_grad_()
        (slope,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
        return slope.square().mean()

    def measure(self, model, batch):
        return {MEASURES}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("measuring", None)


def prepare(folder: Path, measures: str, *assignments: str, methods: str = "") -> prepared.Prepared:
    (folder / "measuring.py").write_text(TASK.replace("MEASURES", measures) + methods)
    config = LaunchConfig(
        job=a_job("spec.task.entrypoint=measuring:Measuring", *assignments),
        job_uid="1",
        role=names.Role.REPLICA,
        index=0,
        run_folder=folder,
        task_folder=folder,
        coordinator_address="ipc://nowhere",
        transport=TransportKind.TCP,
        threads=1,
        device=Device.CPU,
    )
    return prepared.prepare(config, strategies.check_task)


def test_a_loss_that_takes_derivatives_can_be_evaluated(folder: Path) -> None:
    assert prepare(folder, '"ones": batch[0].sum()').test.count == 64


@pytest.mark.parametrize(
    ("measures", "error", "said"),
    [
        ('"ones": batch[0]', MeasureError, r"\['ones'\] must be a scalar"),
        ('"ones": batch[1]', UserCodeError, r"Measuring\.measure\(\) raised IndexError"),
    ],
)
def test_a_mistake_in_what_evaluations_need_shows_before_the_first_step(
    folder: Path, measures: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        prepare(folder, measures)


TARGET = (
    "spec.stop.targetMetric={name: ones, atLeast: 1}",
    "spec.evaluation.everyEpochs=1",
)


def test_a_target_that_the_task_does_not_measure_is_refused_before_the_first_step(
    folder: Path,
) -> None:
    said = r"targetMetric.name is 'ones', and Task.measure\(\) measures one, two: name one of"
    with pytest.raises(MeasureError, match=said):
        prepare(folder, '"two": batch[0].sum(), "one": batch[0].sum()', *TARGET)


def test_a_target_that_the_first_batch_has_nothing_of_may_be_in_a_later_one(folder: Path) -> None:
    later = "'ones' if self.calls else 'others': batch[0].sum() + (self.calls.append(1) or 0)"
    assert prepare(folder, later, *TARGET).test.count == 64


GROUPED = """
    def parameter_groups(self, model):
        return [disttrain.ParameterGroup(parameters=[model.bias], weight_decay=0)]
"""


def test_the_groups_of_a_task_are_in_what_its_replica_tells_of_the_model(folder: Path) -> None:
    made = prepare(folder, "", methods=GROUPED)

    factors = [(spec.rate_factor, spec.decay_factor) for spec in made.tensors.layout.tensors]
    assert factors == [(1.0, 1.0), (1.0, 0.0)]


def test_groups_are_refused_with_a_strategy_that_has_no_rates(folder: Path) -> None:
    sandblaster = "spec.strategy={sandblaster: {portionSize: 8, optimizer: {lbfgs: {}}}}"
    stop = "spec.stop={iterations: 1}"

    with pytest.raises(GroupsError, match="'bias' with factors of its own, and sandblaster has"):
        prepare(folder, "", sandblaster, stop, "spec.batchSize=null", methods=GROUPED)
