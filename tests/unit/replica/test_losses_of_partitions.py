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
