"""What a task's loss may do with a divided model, beside the same model in one process."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders.divided_models import in_parts

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


def with_noise(model: nn.Module, x: Tensor) -> Tensor:
    """Looks at the model with other parameters before."""
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1)
        other: Tensor = model(x).square().mean()
        for each in model.parameters():
            each.sub_(0.1)
    return cross_entropy(model, x) * other


def with_other_statistics(model: nn.Module, x: Tensor) -> Tensor:
    """Calls layers that change buffers between two calls of the model."""
    assert isinstance(model, nn.Sequential)
    before = cross_entropy(model, x)
    model[:2](3 * x)
    model.eval()
    after: Tensor = model(x).square().mean()
    model.train()
    return before + after


def with_nothing_of_it(model: nn.Module, x: Tensor) -> Tensor:
    model(x)
    return torch.stack([each.square().sum() for each in model.parameters()]).sum()


def against_an_adversary(model: nn.Module, x: Tensor) -> Tensor:
    x.requires_grad_()
    (found,) = torch.autograd.grad(cross_entropy(model, x), x)
    return cross_entropy(model, (x + 0.1 * found.sign()).detach())


def with_a_teacher(model: nn.Module, x: Tensor) -> Tensor:
    teacher = copy.deepcopy(model).eval()
    with torch.no_grad():
        wanted = teacher(x)
    found: Tensor = (model(x) - wanted).square().mean()
    return found


@pytest.mark.parametrize(
    "loss",
    [
        with_statistics_that_stay,
        with_noise,
        with_other_statistics,
        with_nothing_of_it,
        against_an_adversary,
        with_a_teacher,
    ],
)
def test_gradients_and_buffers_are_those_of_one_process(
    loss: Callable[[nn.Module, Tensor], Tensor],
) -> None:
    model = a_model()
    alone = copy.deepcopy(model)
    with in_parts(model, 2, SAMPLE) as divided:
        for step in range(2):
            x = samples()
            with divided.computing(step):
                found = loss(model, x.clone())
            found.backward()  # type: ignore[no-untyped-call]
            wanted = loss(alone, x.clone())
            wanted.backward()  # type: ignore[no-untyped-call]
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
            for own, one in zip(model.parameters(), alone.parameters(), strict=True):
                torch.testing.assert_close(own.grad, one.grad, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(dict(model.named_buffers()), dict(alone.named_buffers()))


def test_a_second_backward_says_what_to_do() -> None:
    model = a_model()
    with in_parts(model, 2, SAMPLE) as divided:
        with divided.computing(0):
            loss = cross_entropy(model, samples())
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="backward once through each output"):
            loss.backward()  # type: ignore[no-untyped-call]


def test_an_output_of_the_step_before_is_not_taken_for_one_of_this_step() -> None:
    model = a_model()
    with in_parts(model, 2, SAMPLE) as divided:
        with divided.computing(0):
            old = cross_entropy(model, samples())
        with divided.computing(1):
            cross_entropy(model, samples())
        with pytest.raises(RuntimeError, match="in the step that made it"):
            old.backward()  # type: ignore[no-untyped-call]


def test_a_derivative_of_a_gradient_is_refused_with_a_remedy() -> None:
    model = a_model()
    with in_parts(model, 2, SAMPLE) as divided, divided.computing(0):
        x = samples().requires_grad_()
        with pytest.raises(RuntimeError, match=r"create_graph.*spec.replicas.partitions to 1"):
            torch.autograd.grad(cross_entropy(model, x), x, create_graph=True)
