"""What a task's loss may do with a divided model, beside the same model in one process."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders.divided_models import in_parts
from disttrain.job.strategy_kind import Precision
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.errors import LossError, UserCodeError
from disttrain.task.loss import LossContext
from disttrain.task.task import Split, Task

SAMPLE = (2, 7, 6)


class Residual(nn.Module):
    """A layer that is kept whole, with a mode that is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.norm(x)
        return found


def a_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        Residual(),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 4),
    ).double()


def samples() -> Tensor:
    return torch.randn(4, *SAMPLE, dtype=torch.float64)


def cross_entropy(model: nn.Module, x: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), torch.arange(len(x)) % 4)


def with_statistics_that_stay(model: nn.Module, x: Tensor) -> Tensor:
    """As who trains on with the statistics of another run."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    return cross_entropy(model, x)


def with_other_statistics(model: nn.Module, x: Tensor) -> Tensor:
    """Calls the model twice, once with the statistics that it has by then."""
    before = cross_entropy(model, x)
    model.eval()
    after: Tensor = model(x).square().mean()
    model.train()
    return before + after


def against_an_adversary(model: nn.Module, x: Tensor) -> Tensor:
    x.requires_grad_()
    (found,) = torch.autograd.grad(cross_entropy(model, x), x)
    return cross_entropy(model, (x + 0.1 * found.sign()).detach())


@pytest.mark.parametrize(
    "loss",
    [
        with_statistics_that_stay,
        with_other_statistics,
        against_an_adversary,
    ],
)
def test_gradients_and_buffers_are_those_of_one_process(
    loss: Callable[[nn.Module, Tensor], Tensor],
) -> None:
    model = a_model()
    alone = copy.deepcopy(model)
    with in_parts(model, 2, SAMPLE) as parts:
        for step in range(2):
            x = samples()
            with parts.divided.computing(step):
                found = loss(parts.model, x.clone())
            found.backward()  # type: ignore[no-untyped-call]
            wanted = loss(alone, x.clone())
            wanted.backward()  # type: ignore[no-untyped-call]
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
            wanted_gradients = {name: each.grad for name, each in alone.named_parameters()}
            torch.testing.assert_close(parts.gradients(), wanted_gradients, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(parts.values(), dict(alone.state_dict()))


def test_a_second_backward_says_what_to_do() -> None:
    model = a_model()
    with in_parts(model, 2, SAMPLE) as parts:
        with parts.divided.computing(0):
            loss = cross_entropy(parts.model, samples())
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="backward once through each output"):
            loss.backward()  # type: ignore[no-untyped-call]


def test_an_output_of_the_step_before_is_not_taken_for_one_of_this_step() -> None:
    model = a_model()
    with in_parts(model, 2, SAMPLE) as parts:
        with parts.divided.computing(0):
            old = cross_entropy(parts.model, samples())
        with parts.divided.computing(1):
            cross_entropy(parts.model, samples())
        with pytest.raises(RuntimeError, match="in the step that made it"):
            old.backward()  # type: ignore[no-untyped-call]


def test_a_derivative_of_a_gradient_is_refused_with_a_remedy() -> None:
    model = a_model()
    with in_parts(model, 2, SAMPLE) as parts, parts.divided.computing(0):
        x = samples().requires_grad_()
        with pytest.raises(RuntimeError, match=r"create_graph.*spec.replicas.partitions to 1"):
            torch.autograd.grad(cross_entropy(parts.model, x), x, create_graph=True)


class Of(Task):
    """With a loss of the test's."""

    def __init__(self, loss: Callable[[nn.Module, Tensor], Tensor]) -> None:
        self._loss = loss

    def model(self) -> nn.Module:
        return a_model()

    def dataset(self, split: Split) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self._loss(model, batch)


def with_a_penalty(model: nn.Module, x: Tensor) -> Tensor:
    squares = [each.square().sum() for each in model.parameters()]
    return cross_entropy(model, x) + torch.stack(squares).sum()


def of_parameters_alone(model: nn.Module, x: Tensor) -> Tensor:
    del x
    return torch.stack([each.square().sum() for each in model.parameters()]).sum()


def by_a_layer(model: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = model.get_submodule("0")(x)
    return cross_entropy(model, x) + found.mean()


def with_noise(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1)
    return cross_entropy(model, x)


def with_a_buffer_of_its_own(model: nn.Module, x: Tensor) -> Tensor:
    model.get_buffer("1.running_mean").zero_()
    return cross_entropy(model, x)


def with_a_teacher(model: nn.Module, x: Tensor) -> Tensor:
    teacher = copy.deepcopy(model).eval()
    with torch.no_grad():
        wanted = teacher(x)
    found: Tensor = (model(x) - wanted).square().mean()
    return found


@pytest.mark.parametrize(
    "loss",
    [
        with_a_penalty,
        of_parameters_alone,
        by_a_layer,
        with_noise,
        with_a_buffer_of_its_own,
        with_a_teacher,
    ],
)
def test_a_loss_that_takes_or_gives_values_ends_with_a_remedy(
    loss: Callable[[nn.Module, Tensor], Tensor],
) -> None:
    calls = TaskCalls(Of(loss), Precision.FLOAT64)
    with (
        in_parts(a_model(), 2, SAMPLE) as parts,
        parts.divided.computing(0),
        pytest.raises((LossError, UserCodeError), match="may not read or write its parameters"),
    ):
        calls.loss(parts.model, samples(), LossContext())
