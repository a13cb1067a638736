"""The optimizers of torch.optim that replicas can step with, and the arguments of each. Pure.

Without torch, so that a manifest is checked where there is none; tests compare it with torch.
Left out is what wants a closure or sparse gradients. So are arguments that maximize, or are for
CUDA graphs and derivatives of steps.
"""

import json
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue

from disttrain.job.section import MOST


class OptimizerName(StrEnum):
    """A class of torch.optim."""

    ADAM_W = "AdamW"
    """Adam with decoupled weight decay."""
    ADAM = "Adam"
    """A running mean of gradients over the root of that of their squares."""
    ADADELTA = "Adadelta"
    """Steps that adapt without a rate."""
    ADAFACTOR = "Adafactor"
    """Adam with factored second moments: little memory for matrices."""
    ADAGRAD = "Adagrad"
    """The rate over the root of summed squares."""
    ADAMAX = "Adamax"
    """Adam with the largest of the latest gradients."""
    ASGD = "ASGD"
    """SGD that averages its iterates."""
    MUON = "Muon"
    """Orthogonal momentum, of models whose parameters are all matrices."""
    NADAM = "NAdam"
    """Adam with Nesterov's momentum."""
    RADAM = "RAdam"
    """Adam whose first steps are corrected for their variance."""
    RMSPROP = "RMSprop"
    """The rate over the root of a running mean of squares."""
    RPROP = "Rprop"
    """By the signs of gradients, of whole batches."""
    SGD = "SGD"
    """Stochastic gradient descent, with momentum on request."""


_DECAY = ("lr", "eps", "weight_decay", "foreach")
_ADAM = (*_DECAY, "betas")

ARGUMENTS: Mapping[OptimizerName, tuple[str, ...]] = {
    OptimizerName.ADAM_W: (*_ADAM, "amsgrad", "fused"),
    OptimizerName.ADAM: (*_ADAM, "amsgrad", "fused", "decoupled_weight_decay"),
    OptimizerName.ADADELTA: (*_DECAY, "rho"),
    OptimizerName.ADAFACTOR: (*_DECAY, "beta2_decay", "d"),
    OptimizerName.ADAGRAD: (*_DECAY, "lr_decay", "initial_accumulator_value", "fused"),
    OptimizerName.ADAMAX: _ADAM,
    OptimizerName.ASGD: ("lr", "lambd", "alpha", "t0", "weight_decay", "foreach"),
    OptimizerName.MUON: (
        "lr",
        "weight_decay",
        "momentum",
        "nesterov",
        "ns_coefficients",
        "eps",
        "ns_steps",
        "adjust_lr_fn",
    ),
    OptimizerName.NADAM: (*_ADAM, "momentum_decay", "decoupled_weight_decay"),
    OptimizerName.RADAM: (*_ADAM, "decoupled_weight_decay"),
    OptimizerName.RMSPROP: (*_DECAY, "alpha", "momentum", "centered"),
    OptimizerName.RPROP: ("lr", "etas", "step_sizes", "foreach"),
    OptimizerName.SGD: (
        "lr",
        "momentum",
        "dampening",
        "weight_decay",
        "nesterov",
        "foreach",
        "fused",
    ),
}
"""Their names are torch's own."""


class Values(NamedTuple):
    """The values of an argument that torch takes."""

    words: str
    """After "must be"."""
    hold: Callable[[JsonValue], bool]


def problem(name: OptimizerName, arguments: Mapping[str, JsonValue]) -> str | None:
    """What torch would refuse of known arguments, with its name first; None: nothing."""
    for argument, value in arguments.items():
        values = _OF_ONE.get((name, argument)) or _OF_ALL[argument]
        if not values.hold(value):
            return f"{argument}: must be {values.words}, got {json.dumps(value):.60}"
    if arguments.get("fused") and arguments.get("foreach"):
        return "fused: must be false with foreach: true, got true; leave one of them out"
    if name is OptimizerName.SGD and arguments.get("nesterov"):
        return _problem_with_nesterov(arguments)
    return None


def _problem_with_nesterov(arguments: Mapping[str, JsonValue]) -> str | None:
    if not arguments.get("momentum"):
        return "nesterov: needs a momentum above 0, which is 0; set momentum, as 0.9"
    if arguments.get("dampening"):
        return "nesterov: needs a dampening of 0; leave dampening out"
    return None


def _is_number(value: JsonValue, least: float = -MOST, most: float = MOST) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value <= most


def _numbers(words: str, least: float = -MOST, most: float = MOST) -> Values:
    return Values(words, lambda value: _is_number(value, least, most))


def _list(words: str, *items: Callable[[JsonValue], bool]) -> Values:
    def hold(value: JsonValue) -> bool:
        if not isinstance(value, list) or len(value) != len(items):
            return False
        return all(fits(item) for fits, item in zip(items, value, strict=True))

    return Values(words, hold)


def _is_size(value: JsonValue) -> bool:
    return _is_number(value, 0)


def _is_decay(value: JsonValue) -> bool:
    return _is_number(value, 0, math.nextafter(1, 0))


_SIZE = Values(f"a number from 0 to {MOST:.0e}", _is_size)
_NUMBER = _numbers("a number")
_SWITCH = Values("true or false", lambda value: isinstance(value, bool))
_CHOICE = Values("true, false or null", lambda value: value is None or isinstance(value, bool))

_OF_ALL: Mapping[str, Values] = {
    **dict.fromkeys(("lr", "eps", "weight_decay", "lr_decay", "lambd", "alpha", "momentum"), _SIZE),
    **dict.fromkeys(("initial_accumulator_value", "momentum_decay"), _SIZE),
    **dict.fromkeys(("dampening", "t0"), _NUMBER),
    **dict.fromkeys(("amsgrad", "centered", "decoupled_weight_decay", "nesterov"), _SWITCH),
    **dict.fromkeys(("foreach", "fused"), _CHOICE),
    "betas": _list("two numbers from 0 to below 1, as [0.9, 0.99]", _is_decay, _is_decay),
    "rho": _numbers("a number from 0 to 1", 0, 1),
    "beta2_decay": _numbers("a number of at most 0", -MOST, 0),
    "d": _numbers("a number of at least 1", 1),
    "etas": _list(
        "a number between 0 and 1 and one above 1, as [0.5, 1.2]",
        lambda value: _is_decay(value) and value != 0,
        lambda value: _is_number(value, math.nextafter(1, 2)),
    ),
    "step_sizes": _list("two numbers of at least 0, as [1.0e-6, 50]", _is_size, _is_size),
    "ns_coefficients": _list("three numbers", _is_number, _is_number, _is_number),
    "ns_steps": Values(
        "a whole number from 0 to 99",
        lambda value: isinstance(value, int) and _is_number(value, 0, 99),
    ),
    "adjust_lr_fn": Values("a name or null", lambda value: value is None or isinstance(value, str)),
}

_OF_ONE: Mapping[tuple[OptimizerName, str], Values] = {
    (OptimizerName.ADAFACTOR, "eps"): _list(
        "a number of at least 0 or null, and a number of at least 0, as [null, 0.001]",
        lambda value: value is None or _is_size(value),
        _is_size,
    ),
}
"""Arguments that mean something else to one optimizer."""
