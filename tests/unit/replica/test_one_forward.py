from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from disttrain.replica.evaluation import one_forward


class Counting(nn.Module):
    """Doubles its input, and counts how often; `inside` may do something to input and result."""

    def __init__(self, inside: Callable[[Tensor, Tensor], Any] = lambda _, result: result) -> None:
        super().__init__()
        self.inside = inside
        self.calls = 0

    def forward(self, given: Tensor, factor: int = 2, *, shift: Tensor | None = None) -> Any:
        self.calls += 1
        result = given * factor
        return self.inside(given, result if shift is None else result + shift)


@torch.no_grad()
def test_a_second_call_with_the_same_tensors_costs_nothing() -> None:
    model, batch, shift = Counting(), torch.ones(3), torch.ones(3)

    with one_forward(model):
        first = model(batch, shift=shift)
        second = model(batch, shift=shift)

    assert second is first
    assert first.tolist() == [3.0, 3.0, 3.0]
    assert model.calls == 1


@torch.no_grad()
def test_a_tuple_of_tensors_counts_like_its_tensors() -> None:
    model = Counting(lambda given, result: (given, (result, None)))
    batch = torch.ones(3)

    with one_forward(model):
        assert model(batch)[1][0] is model(batch)[1][0]

    assert model.calls == 1


def _another(model: nn.Module, batch: Tensor, _: Tensor) -> Any:
    return model(batch.clone())


def _another_factor(model: nn.Module, batch: Tensor, _: Tensor) -> Any:
    return model(batch, 3)


def _a_name(model: nn.Module, batch: Tensor, _: Tensor) -> Any:
    return model(batch, shift=torch.zeros(3))


def _written_input(model: nn.Module, batch: Tensor, _: Tensor) -> Any:
    return model(batch.mul_(1))


def _written_result(model: nn.Module, batch: Tensor, result: Tensor) -> Any:
    result.mul_(5)
    return model(batch)


def _other_mode(model: nn.Module, batch: Tensor, _: Tensor) -> Any:
    return model.eval()(batch)


def _gradients(model: nn.Module, batch: Tensor, _: Tensor) -> Any:
    with torch.enable_grad():
        return model(batch)


@pytest.mark.parametrize(
    "second",
    [
        _another,
        _another_factor,
        _a_name,
        _written_input,
        _written_result,
        _other_mode,
        _gradients,
    ],
)
@torch.no_grad()
def test_another_call_is_computed(second: Callable[[nn.Module, Tensor, Tensor], Any]) -> None:
    model, batch = Counting(), torch.ones(3)

    with one_forward(model):
        first = model(batch)
        again = second(model, batch, first)

    assert model.calls == 2
    assert again.tolist() == [3.0 if second is _another_factor else 2.0] * 3


@pytest.mark.parametrize(
    "inside",
    [
        lambda given, _: given.mul_(1),
        lambda _, result: {"scores": result},
        lambda _, result: UserDict(scores=result),
    ],
    ids=["a model that writes in its input", "a dictionary", "an object"],
)
@torch.no_grad()
def test_what_may_have_changed_is_computed_anew(inside: Callable[[Tensor, Tensor], Any]) -> None:
    model, batch = Counting(inside), torch.ones(3)

    with one_forward(model):
        model(batch)
        model(batch)

    assert model.calls == 2


def test_tensors_of_inference_mode_are_computed_anew() -> None:
    model = Counting()
    with torch.inference_mode():
        batch = torch.ones(3)

        with one_forward(model):
            model(batch)
            model(batch)

    assert model.calls == 2


@pytest.mark.parametrize("own", [{}, {"forward": lambda batch: batch * 7}], ids=["class", "own"])
def test_the_model_is_as_before_also_after_an_error(own: dict[str, Any]) -> None:
    model = Counting()
    vars(model).update(own)

    def fail() -> None:
        with one_forward(model), torch.no_grad():
            model(torch.ones(3))
            message = "no such column"
            raise KeyError(message)

    with pytest.raises(KeyError, match="no such column"):
        fail()

    assert vars(model).get("forward") is own.get("forward")
    assert model(torch.ones(1)).item() == (7.0 if own else 2.0)


@pytest.mark.landing  # PyTorch's compiler alone takes seconds to import.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@torch.no_grad()
def test_scripted_and_compiled_models_stay_as_they_are() -> None:
    scripted = torch.jit.script(nn.Linear(1, 1))
    compiled = Counting()
    compiled.compile(backend="eager")

    for model in (scripted, compiled):
        own = vars(model).get("forward")
        with one_forward(model):
            model(torch.ones(1))
            assert vars(model).get("forward") is own
