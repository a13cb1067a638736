from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from disttrain.job.strategy_kind import Precision
from disttrain.replica import evaluation
from disttrain.replica.task_calls import Examples, TaskCalls
from disttrain.task.errors import LossError, MeasureError, UserCodeError
from disttrain.task.loss import Loss, LossContext
from disttrain.task.task import Split, Task


class Numbers(Task):
    """Ten numbers; the loss is their mean, and a measure counts those that are even."""

    def __init__(self, fail: Callable[[], None] = lambda: None) -> None:
        self.fail = fail
        self.seen: list[tuple[bool, bool]] = []

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))

    def dataset(self, split: Split) -> Dataset[Any]:
        del split
        return TensorDataset(torch.arange(10.0))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.fail()
        self.seen.append((model.training, torch.is_grad_enabled()))
        mean: Tensor = batch[0].mean()
        return mean

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        del model
        return {"even": (batch[0] % 2 == 0).sum()}


def evaluated(task: Numbers, model: nn.Module, batch_size: int) -> evaluation.Sums:
    calls = TaskCalls(task)
    examples: Examples = calls.examples(Split.TEST, batch_size)
    return evaluation.evaluate(calls, model, examples, batch_size, lambda batch: batch)


class Slope(nn.Module):
    """A factor; counts forward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))
        self.passes = 0

    def forward(self, numbers: Tensor) -> Tensor:
        self.passes += 1
        return self.factor * numbers


class Scored(Numbers):
    """Its loss and its measure both call the model."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        mean: Tensor = model(batch[0]).mean()
        return mean

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"sum": model(batch[0]).sum()}


def test_loss_and_measures_of_a_batch_share_one_forward_pass() -> None:
    model = Slope()

    sums = evaluated(Scored(), model, batch_size=4)

    assert sums.mean_loss == pytest.approx(9.0)
    assert sums.measures == {"sum": 90.0}
    assert model.passes == 3


@pytest.mark.parametrize("batch_size", [1, 3, 10, 64])
def test_loss_is_the_mean_over_samples_and_measures_are_sums(batch_size: int) -> None:
    task = Numbers()

    sums = evaluated(task, task.model(), batch_size)

    assert sums.samples == 10
    assert sums.mean_loss == pytest.approx(4.5)
    assert sums.measures == {"even": 5.0}


def test_the_model_is_in_eval_mode_without_gradients_and_then_as_before() -> None:
    task = Numbers()
    model = task.model()
    model[0].eval()  # type: ignore[index]

    evaluated(task, model, 10)

    assert task.seen == [(False, False)]
    assert [module.training for module in model.modules()] == [True, False, True]


def test_the_mode_comes_back_after_an_error_of_the_task() -> None:
    def fail() -> None:
        message = "no such column"
        raise KeyError(message)

    task = Numbers(fail)
    model = task.model()

    with pytest.raises(UserCodeError, match=r"Numbers\.loss\(\) raised KeyError"):
        evaluated(task, model, 10)
    assert model.training


@pytest.mark.parametrize(("of", "is_told"), [(torch.float64, True), (torch.float32, False)])
def test_an_error_on_a_batch_in_double_precision_names_the_remedy(
    of: torch.dtype, *, is_told: bool
) -> None:
    def fail() -> None:
        message = "mat1 and mat2 must have the same dtype"
        raise RuntimeError(message)

    calls = TaskCalls(Numbers(fail))
    with pytest.raises(UserCodeError) as caught:
        calls.loss(calls.model(seed=0), (torch.zeros(3, dtype=of),), LossContext())
    assert ("sandblaster.precision: float64" in str(caught.value)) == is_told
    assert "same dtype" in str(caught.value)


def test_in_double_precision_models_and_batches_are_double() -> None:
    calls = TaskCalls(Numbers(), Precision.FLOAT64)

    samples = [(torch.tensor(1.0),), (torch.tensor(2.0),)]
    assert calls.collate(samples)[0].dtype is torch.float64
    assert {one.dtype for one in calls.model(seed=0).parameters()} == {torch.float64}


class Tokens(Numbers):
    """Number n has n tokens, each with the loss n."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:  # type: ignore[override]  # Numbers returns a mean.
        del model
        return Loss(sum=batch[0].square().sum(), count=batch[0].sum())


@pytest.mark.parametrize("batch_size", [1, 3, 10])
def test_a_loss_with_a_count_is_a_mean_over_what_counts(batch_size: int) -> None:
    task = Tokens()

    sums = evaluated(task, task.model(), batch_size)

    assert sums.mean_loss == pytest.approx(285 / 45)
    assert sums.samples == 10


class Weighed(Numbers):
    """Only numbers from `least` on count."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.least = least

    def loss(self, model: nn.Module, batch: Any) -> Loss:  # type: ignore[override]  # As above.
        del model
        weights = (batch[0] >= self.least).float()
        return Loss(sum=(batch[0] * weights).sum(), count=weights.sum())


def test_batches_in_which_nothing_counts_are_fine_if_others_do() -> None:
    task = Weighed(least=9)
    assert evaluated(task, task.model(), 1).mean_loss == 9


def test_a_split_in_which_nothing_counts_is_a_mistake_of_the_loss() -> None:
    task = Weighed(least=10)
    calls = TaskCalls(task)
    examples = calls.examples(Split.TEST, 4)

    evaluation.try_one_batch(calls, task.model(), examples, 4, lambda batch: batch)
    with pytest.raises(LossError, match=r"count was 0 in all batches of the split \(10 samples\)"):
        evaluated(task, task.model(), 4)


class Differentiating(Numbers):
    """The loss is the derivative of a square, as of a field that a model describes."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.seen.append((model.training, torch.is_grad_enabled()))
        at = batch[0].clone().requires_grad_()
        (slope,) = torch.autograd.grad(at.square().sum(), at, create_graph=True)
        mean: Tensor = slope.mean()
        return mean


def test_a_loss_that_takes_derivatives_is_evaluated_and_only_the_first_batch_twice() -> None:
    task = Differentiating()

    sums = evaluated(task, task.model(), 5)

    assert sums.mean_loss == pytest.approx(9.0)
    assert sums.measures == {"even": 5.0}
    assert task.seen == [(False, False), (False, True), (False, True)]


def test_one_batch_shows_a_mistake_of_the_loss_and_of_a_measure() -> None:
    class Mistaken(Numbers):
        def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
            del model
            return {"even": batch[0]}

    task = Mistaken()
    calls = TaskCalls(task)
    examples = calls.examples(Split.TEST, 4)

    with pytest.raises(MeasureError, match="must be a scalar"):
        evaluation.try_one_batch(calls, task.model(), examples, 4, lambda batch: batch)
    assert len(task.seen) == 1
