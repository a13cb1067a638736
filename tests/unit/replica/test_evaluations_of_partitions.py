"""Evaluations by a divided model, beside the same model in one process."""

import copy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from builders.divided_models import CPU, assert_close, gradients, in_parts
from disttrain.groups.steps import Collective
from disttrain.job.strategy_kind import Precision
from disttrain.parallel.partitioned import Partitioned
from disttrain.replica import division, evaluation, model_tensors, partition_values
from disttrain.replica.evaluation import Computing, Sums
from disttrain.replica.partitions import DividedModel
from disttrain.replica.prepared import Prepared
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.errors import LossError, ModelError
from disttrain.task.task import Split, Task

SAMPLE = (2, 7, 6)
SAMPLES, BATCH = 10, 4
"""The last batch is smaller."""


class Images(Task):
    """Calls the model several times, also with other samples."""

    def model(self) -> nn.Module:
        model = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.Tanh(),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(168, 5),
        )
        model[0].requires_grad_(False)  # noqa: FBT003
        return model

    def dataset(self, split: Split) -> Dataset[Any]:
        del split
        images = torch.randn(SAMPLES, *SAMPLE, generator=torch.Generator().manual_seed(1))
        return TensorDataset(images, torch.arange(SAMPLES) % 5)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1])

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        images = batch[0]
        with torch.inference_mode():
            inferred = model(images[:1]).square().sum()
        return {
            "same": model(images).square().sum(),
            "mirrored": model(images.flip(-1)).square().sum(),
            "inferred": inferred,
        }


class Attacked(Images):
    """Takes a derivative with respect to samples, in evaluations, too."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        x = batch[0].detach().requires_grad_()
        (found,) = torch.autograd.grad(functional.cross_entropy(model(x), batch[1]), x)
        return functional.cross_entropy(model((x + 0.1 * found.sign()).detach()), batch[1])


def a_model(calls: TaskCalls, seed: int = 1) -> nn.Module:
    """With running statistics that are none of a new model."""
    model = calls.model(seed)
    dtype = next(model.parameters()).dtype
    torch.manual_seed(seed)
    model(3 * torch.randn(20, *SAMPLE, dtype=dtype) + 1)
    return model


def evaluated(calls: TaskCalls, model: nn.Module, computing: Computing = evaluation.alone) -> Sums:
    examples = calls.examples(Split.TEST, 1)
    return evaluation.evaluate(calls, model, examples, BATCH, lambda batch: batch, computing)


def assert_same(found: Sums, wanted: Sums, bound: float) -> None:
    assert (found.samples, found.count) == (wanted.samples, wanted.count)
    assert found.loss == pytest.approx(wanted.loss, rel=bound)
    assert found.measures == pytest.approx(wanted.measures, rel=bound)


@pytest.mark.parametrize("task", [Images(), Attacked()])
@pytest.mark.parametrize(
    ("precision", "bound"), [(Precision.FLOAT32, 1e-5), (Precision.FLOAT64, 1e-10)]
)
def test_what_is_measured_is_that_of_one_process(
    task: Task, precision: Precision, bound: float
) -> None:
    calls = TaskCalls(task, precision)
    model = a_model(calls)
    wanted = evaluated(calls, copy.deepcopy(model))
    with in_parts(model, 3, SAMPLE) as parts:
        for _ in range(2):
            assert_same(
                evaluated(calls, parts.model, parts.divided.evaluating(parts.model)), wanted, bound
            )
    assert parts.model.training
    torch.testing.assert_close(parts.values(), dict(model.state_dict()), rtol=0, atol=0)


def test_the_evaluation_of_a_divided_replica_is_computed_by_all() -> None:
    calls = TaskCalls(Images())
    model = a_model(calls)
    examples = calls.examples(Split.TEST, 1)
    with in_parts(model, 2, SAMPLE) as parts:
        replica = Prepared(
            task=calls,
            model=parts.model,
            tensors=model_tensors.describe(model),
            train=examples,
            test=examples,
            device=CPU,
            of_several=parts.divided,
        )
        found = replica.evaluate(parts.model, Split.TEST, BATCH)
        assert parts.parts[0].peers.traffic.messages > 0
    assert_same(found, evaluated(calls, model), 1e-5)


class Larger(Images):
    """Its tests are of larger images."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh())

    def dataset(self, split: Split) -> Dataset[Any]:
        side = 9 if split == Split.TEST else 7
        return TensorDataset(torch.zeros(SAMPLES, 2, side, 6), torch.zeros(SAMPLES))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        found: Tensor = model(batch[0]).square().mean()
        return found


def test_tests_of_another_shape_are_refused_before_the_training() -> None:
    calls = TaskCalls(Larger())
    with pytest.raises(LossError, match=r"are \(2, 7, 6\), .* test split \(2, 9, 6\); give"):
        division.common_sample_shape(calls, calls.model(0))


def train(model: nn.Module, divided: DividedModel | None = None) -> None:
    x = torch.randn(4, *SAMPLE, generator=torch.Generator().manual_seed(2)).double()
    with nullcontext() if divided is None else divided.computing(0):
        # Dropout draws other numbers in one process.
        model.eval()
        loss = model(x).square().sum()
    loss.backward()


def test_another_model_is_measured_and_the_trained_one_goes_on(tmp_path: Path) -> None:
    """As the final model, which is read from its file."""
    calls = TaskCalls(Images(), Precision.FLOAT64)
    trained, other = a_model(calls), a_model(calls, seed=7)
    alone, file = copy.deepcopy(trained), tmp_path / "model.safetensors"
    save_file(other.state_dict(), file)
    with in_parts(trained, 2, SAMPLE) as parts:
        for _ in range(2):
            train(parts.model, parts.divided)
            train(alone)
            assert_close(parts.gradients(), gradients(alone))
            with parts.divided.loaded(str(file)) as loaded:
                found = evaluated(calls, loaded, parts.divided.evaluating(loaded))
                assert_same(found, evaluated(calls, copy.deepcopy(other)), 1e-10)
                for name, each in other.state_dict().items():
                    assert parts.divided.tensor(loaded, name).equal(each)
            for name in other.state_dict():
                assert parts.divided.tensor(parts.model, name).equal(trained.state_dict()[name])


def test_a_file_that_lacks_what_is_trained_is_refused_by_the_tensors_name(tmp_path: Path) -> None:
    """What is frozen may be each replica's own."""
    calls, file = TaskCalls(Images()), tmp_path / "model.safetensors"
    model = a_model(calls)
    values = model.state_dict()
    with in_parts(model, 2, SAMPLE) as parts:
        save_file({name: each for name, each in values.items() if name != "0.weight"}, file)
        with parts.divided.loaded(str(file)):
            pass
    save_file({name: each for name, each in values.items() if name != "5.bias"}, file)
    lacking = r"has no tensor '5\.bias', which the model has"
    with in_parts(model, 2, SAMPLE) as parts, pytest.raises(ModelError, match=lacking):
        partition_values.loaded(parts.parts[1], str(file))


def test_values_go_to_all_partitions_once_until_they_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, shared = TaskCalls(Images(), Precision.FLOAT64), list[nn.Module]()
    model, share = a_model(calls), partition_values.share

    def noted(part: Partitioned, group: Collective) -> None:
        shared.append(part)
        share(part, group)

    monkeypatch.setattr(partition_values, "share", noted)
    alone = copy.deepcopy(model)
    with in_parts(model, 2, SAMPLE) as parts:
        for _ in range(2):
            evaluated(calls, parts.model, parts.divided.evaluating(parts.model))
            assert len(shared) == 2
        train(parts.model, parts.divided)
        parts.step(0.01)
        train(alone)
        torch.optim.SGD(alone.parameters(), lr=0.01).step()
        found = evaluated(calls, parts.model, parts.divided.evaluating(parts.model))
    assert_same(found, evaluated(calls, alone), 1e-10)


class Flat(Images):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(84, 40))

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"squares": model(batch[0]).square().sum()}


def test_an_evaluation_sends_images_and_no_parameters() -> None:
    calls = TaskCalls(Flat(), Precision.FLOAT64)
    model = calls.model(1)
    with in_parts(model, 4, SAMPLE) as parts:
        found = evaluated(calls, parts.model, parts.divided.evaluating(parts.model))
        sent = parts.parts[0].peers.traffic.nbytes
    assert_same(found, evaluated(calls, model), 1e-10)
    # All images to each of three, for the loss and the measure once.
    assert sent == 3 * 84 * SAMPLES * 8


def test_what_a_loss_takes_derivatives_of_is_dropped_with_its_batch() -> None:
    calls = TaskCalls(Attacked(), Precision.FLOAT64)
    model = a_model(calls)
    with in_parts(model, 2, SAMPLE) as parts:
        evaluated(calls, parts.model, parts.divided.evaluating(parts.model))
        # The second call of the last batch, of which nobody went backward.
        assert len(parts.divided.part._outputs) <= 2
