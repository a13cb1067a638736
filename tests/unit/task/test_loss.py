import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import disttrain
from disttrain.replica.task_calls import TaskCalls
from disttrain.task import checks
from disttrain.task.errors import LossError
from disttrain.task.loss import Loss, LossContext

WEIGHT = torch.tensor(3.0, requires_grad=True)


class Anything(disttrain.Task):
    """Whose loss is what it is told to be."""

    def __init__(self, *losses: object) -> None:
        self.losses = iter(losses)

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def dataset(self, split: disttrain.Split) -> Dataset[Any]:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Any) -> Any:
        del model, batch
        return next(self.losses)


class Told(Anything):
    """Wants to know where it is, and reports it."""

    def loss(self, model: nn.Module, batch: Any, context: LossContext) -> Tensor:  # type: ignore[override]  # What a task may do.
        del model, batch
        context.report(step=context.step, twice=WEIGHT * 2)
        return WEIGHT * context.samples


@pytest.mark.parametrize("count", [4, 4.0, torch.tensor(4), torch.tensor([4.0])])
def test_a_sum_and_a_count_have_a_mean(count: Any) -> None:
    loss = checks.check_loss(Loss(sum=WEIGHT * 8.0, count=count))

    assert (loss.mean.item(), loss.count) == (6.0, torch.tensor(4.0, dtype=torch.float64))
    assert loss.figures([6.0, 4.0]).count == 4.0


def test_a_weighted_mean_is_a_sum_and_a_count() -> None:
    loss = checks.check_loss(Loss.mean(WEIGHT * 2.0, torch.tensor(2.5)))

    assert loss.sum is not None
    assert (loss.sum.item(), loss.mean.item()) == (15.0, 6.0)


def test_where_nothing_counts_the_loss_and_its_gradient_are_zero() -> None:
    loss = checks.check_loss(Loss(sum=WEIGHT * 0.0, count=0))

    (gradient,) = torch.autograd.grad(loss.mean, WEIGHT)
    assert (loss.mean.item(), gradient.item()) == (0.0, 0.0)


@pytest.mark.parametrize("count", [-1.0, math.nan, math.inf])
def test_a_count_that_divides_nothing_is_refused(count: float) -> None:
    with pytest.raises(LossError, match=r"Loss\.count must be a finite number of at least 0"):
        checks.check_count(count)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (Loss(sum=WEIGHT.expand(2), count=2), r"scalar, got a tensor of shape \(2,\)"),
        (Loss(sum=WEIGHT * 1.0, count=torch.ones(2)), r"Loss\.count must be a scalar"),
        ((WEIGHT * 1.0, {"kl": 1.0}), "must return a tensor or a Loss, got a tuple"),
    ],
)
def test_other_losses_are_refused(loss: object, said: str) -> None:
    with pytest.raises(LossError, match=said):
        checks.check_loss(loss)


def test_a_loss_is_of_one_form() -> None:
    calls = TaskCalls(Anything(Loss(sum=WEIGHT * 1.0, count=1), WEIGHT * 1.0))
    model = nn.Linear(1, 1)
    calls.loss(model, None, LossContext())

    with pytest.raises(LossError, match="let it be one of both"):
        calls.loss(model, None, LossContext())


def test_a_loss_with_a_parameter_named_context_is_told_and_may_report() -> None:
    calls = TaskCalls(Told())

    loss = calls.loss(nn.Linear(1, 1), None, LossContext(step=4, samples=2))

    assert loss.mean.item() == 6.0
    assert {name: value.item() for name, value in loss.reported.items()} == {
        "step": 4.0,
        "twice": 6.0,
    }
    assert not loss.reported["twice"].requires_grad


def test_an_evaluation_is_told_what_the_latest_step_was() -> None:
    calls = TaskCalls(Told())
    assert calls.loss_sum(nn.Linear(1, 1), None, 5) == (0.0, 5)

    calls.loss(nn.Linear(1, 1), None, LossContext(samples=2))

    assert calls.loss_sum(nn.Linear(1, 1), None, 5) == (30.0, 5)


@pytest.mark.parametrize("value", [torch.ones(2), "much", None])
def test_what_is_reported_is_a_scalar(value: Any) -> None:
    with pytest.raises(LossError, match=r"context\.report\(kl=\.\.\.\) must be given a scalar"):
        checks.check_reported({"kl": value}, torch.device("cpu"))


def test_no_more_is_reported_than_a_heartbeat_can_hold() -> None:
    with pytest.raises(LossError, match="at most 32 names, got 33"):
        checks.check_reported(dict.fromkeys(map(str, range(33)), 1.0), torch.device("cpu"))
