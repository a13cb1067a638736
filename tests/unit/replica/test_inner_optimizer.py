"""The optimizers of torch.optim that a manifest names."""

import itertools

import pytest
import torch
from pydantic import JsonValue
from torch import nn

from disttrain.job import torch_optimizers
from disttrain.job.inner_optimizer import InnerOptimizer
from disttrain.job.length import UNKNOWN
from disttrain.job.schedule import Schedule
from disttrain.job.schedule_kinds import LinearWarmup, full_rate
from disttrain.job.torch_optimizers import ARGUMENTS, OptimizerName
from disttrain.replica import inner_optimizer
from disttrain.replica.errors import OptimizerRefused
from disttrain.replica.inner_optimizer import InnerSteps
from disttrain.state.factors import Factors


def named(name: str, **arguments: object) -> InnerOptimizer:
    return InnerOptimizer.model_validate({"name": name, "arguments": arguments})


@pytest.mark.parametrize("name", OptimizerName)
def test_each_optimizer_takes_steps_by_its_defaults(name: OptimizerName) -> None:
    inner_optimizer.check(named(name), nn.Linear(3, 2, bias=False))


@pytest.mark.parametrize("name", OptimizerName)
def test_each_optimizer_steps_as_a_new_one_after_it_has_forgotten(name: OptimizerName) -> None:
    used, new = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    of = [Factors(0, 4, 0.5, 0.5)]
    steps = InnerSteps(named(name), [used], of, full_rate)
    used.grad = torch.full((2, 2), 3.0)
    steps.step([True], 0)
    used.data.fill_(1.0)

    steps.forget()
    for parameter in (used, new):
        parameter.grad = torch.tensor([[1.0, -1.0], [2.0, 0.5]])
    steps.step([True], 0)
    InnerSteps(named(name), [new], of, full_rate).step([True], 0)

    assert torch.equal(used, new)


def test_an_optimizer_that_this_torch_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(OptimizerRefused, match=r"^spec.*optimizer.name: .*Muon needs a newer"):
        inner_optimizer.check(named("Muon"), nn.Linear(3, 2, bias=False))


VALUES: list[JsonValue] = [
    None, True, False, -1.0, -1, 0, 0.0, 0.5, 1.0, 1, 2, 100, 1.5, 1e300, "much", [], {},
    [0.5], [0.5, 0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 1.0], [1.0, 0.5], [0.5, 1.5], [0.0, 1.5],
    [None, 0.5], [0.5, None], [0.5, 0.5, 0.5], ["much", 0.5],
]  # fmt: skip


def unchecked(name: OptimizerName, arguments: dict[str, JsonValue]) -> InnerOptimizer:
    return InnerOptimizer.model_construct(name=name, arguments=arguments)


@pytest.mark.parametrize("name", OptimizerName)
def test_what_torch_refuses_of_a_value_a_manifest_is_refused_for(name: OptimizerName) -> None:
    model, missed = nn.Linear(3, 2, bias=False), []
    for argument, value in itertools.product(ARGUMENTS[name], VALUES):
        arguments = {argument: value}
        if torch_optimizers.problem(name, arguments) is None:
            try:
                inner_optimizer.check(unchecked(name, arguments), model)
            except OptimizerRefused:
                missed.append(arguments)
    assert [each for each in missed if each != {"adjust_lr_fn": "much"}] == []


@pytest.mark.parametrize("name", OptimizerName)
def test_torchs_defaults_are_good_values(name: OptimizerName) -> None:
    (group,) = getattr(torch.optim, name)([nn.Parameter(torch.zeros(2, 2))]).param_groups
    defaults = {
        argument: list(value) if isinstance(value, tuple) else value
        for argument, value in group.items()
        if argument in ARGUMENTS[name] and argument != "nesterov"
    }
    assert torch_optimizers.problem(name, defaults) is None


def test_what_torch_alone_knows_is_refused_by_its_field() -> None:
    with pytest.raises(OptimizerRefused, match=r"^spec\..*optimizer\.arguments: .*much"):
        inner_optimizer.check(named("Muon", adjust_lr_fn="much"), nn.Linear(3, 2, bias=False))


def test_an_optimizer_that_does_not_fit_the_model_is_refused() -> None:
    with pytest.raises(OptimizerRefused, match="2D"):
        inner_optimizer.check(named("Muon"), nn.Linear(3, 2))


def test_parameters_that_are_stepped_alike_are_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch steps a group in a few calls, however many parameters it has."""
    sizes: list[list[int]] = []
    step = torch.optim.AdamW.step

    def watched(self: torch.optim.AdamW) -> None:
        sizes.append([len(group["params"]) for group in self.param_groups])
        step(self)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    parameters = [nn.Parameter(torch.zeros(1)) for _ in range(6)]
    own = Factors(0, 1, 0.5, 1.0)
    factors = [Factors(0, 1), own, Factors(1, 2), Factors(2, 3, 1.0, 0.0), own, Factors(4, 5)]
    for parameter in parameters:
        parameter.grad = torch.ones(1)

    InnerSteps(named("AdamW", lr=1.0), parameters, factors, full_rate).step([True] * 6, 0)

    assert sizes == [[3, 2, 1]]
    moved = [-round(parameter.item(), 3) for parameter in parameters]
    assert moved == [1.0, 0.5, 1.0, 1.0, 0.5, 1.0]


def test_the_rate_of_a_step_goes_by_the_samples_before_it() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    rates = Schedule(linear_warmup=LinearWarmup(samples=32)).rates(UNKNOWN)
    steps = InnerSteps(named("SGD", lr=1.0), [parameter], [Factors(0, 1, 0.5, 1.0)], rates)

    moved = []
    for samples in (0, 8, 16, 32, 64):
        before = parameter.item()
        parameter.grad = torch.ones(1)
        steps.step([True], samples)
        moved.append(before - parameter.item())

    assert moved == [0.0, 0.125, 0.25, 0.5, 0.5]
