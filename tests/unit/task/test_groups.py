"""Which parameters a task puts into groups."""

from typing import Any

import pytest
from torch import nn

from disttrain import ParameterGroup
from disttrain.task import groups
from disttrain.task.errors import GroupsError
from disttrain.task.groups import GroupFactors


def a_model() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 3), nn.Linear(3, 3))
    model[3].weight = model[2].weight
    return model


def test_names_and_parameters_may_be_given() -> None:
    model = a_model()
    given = [
        ParameterGroup(parameters=["0.bias"], weight_decay=0),
        ParameterGroup(parameters=model[1].parameters(recurse=False), learning_rate=0.5),
    ]

    assert groups.resolve(given, model) == {
        "0.bias": GroupFactors(1.0, 0.0),
        "1.weight": GroupFactors(0.5, 1.0),
        "1.bias": GroupFactors(0.5, 1.0),
    }


def test_a_tied_parameter_goes_by_its_first_name() -> None:
    given = [ParameterGroup(parameters=["3.weight", "2.weight"], weight_decay=0.0)]
    assert set(groups.resolve(given, a_model())) == {"2.weight"}


CALL = r"Task\.parameter_groups\(\)"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, CALL + " must return a list of disttrain.ParameterGroup, got a NoneType"),
        ("0.bias", CALL + " must return a list of disttrain.ParameterGroup, got '0.bias'"),
        ([{"params": ["0.bias"]}], CALL + r"\[0\] must be a disttrain.ParameterGroup, got a dict"),
        (
            [(["0.bais"], 1.0)],
            CALL + r"\[0\] names '0.bais', .*; did you mean '0.bias'",
        ),
        (["0.bias"], CALL + r"\[0\].parameters must be a list of names .*, got '0.bias'"),
        ([([nn.Linear(1, 1).weight], 1.0)], r"\[0\].parameters holds .* no parameter of the model"),
        (
            [(["0.bias"], 1.0), (["1.bias", "0.bias"], 0.0)],
            rf"the parameter '0.bias' is in {CALL}\[0\] and {CALL}\[1\]; name it in one of them",
        ),
        ([(["2.weight"], 1.0), (["3.weight"], 0.0)], r"the parameter '2.weight' is in "),
        ([(["0.bias"], -0.5)], CALL + r"\[0\].weight_decay must be a finite number .*, got -0.5"),
        ([(["0.bias"], float("inf"))], r"\[0\].weight_decay must be a finite number .*, got inf"),
        ([(["0.bias"], "1")], r"\[0\].weight_decay must be a finite number .*, got '1'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given: Any, said: str) -> None:
    if isinstance(given, list):
        given = [
            one
            if isinstance(one, dict)
            else ParameterGroup(parameters=one[0], weight_decay=one[1])
            if isinstance(one, tuple)
            else ParameterGroup(parameters=one)
            for one in given
        ]
    with pytest.raises(GroupsError, match=said):
        groups.resolve(given, a_model())


def test_a_negative_rate_is_refused() -> None:
    given = [ParameterGroup(parameters=["0.bias"], learning_rate=-1)]
    with pytest.raises(GroupsError, match=r"\[0\].learning_rate must be .* at least 0, got -1"):
        groups.resolve(given, a_model())
