"""Parameters that are trained with another rate or weight decay, as a task names them. Pure."""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

from disttrain.task.errors import GroupsError

_CALL = "Task.parameter_groups()"


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterGroup:
    """Parameters, and what the manifest's rate and weight decay are multiplied by for them."""

    parameters: Iterable[str | nn.Parameter]
    """Names, as `named_parameters()` of the model gives them, or the parameters themselves."""

    learning_rate: float = 1.0
    """Factor of the learning rate. 0: they stay as they are."""

    weight_decay: float = 1.0
    """Factor of the weight decay. 0: none, as usual for biases and norms."""


class GroupFactors(NamedTuple):
    """Of one parameter."""

    learning_rate: float
    weight_decay: float


NO_GROUP = GroupFactors(1.0, 1.0)


def resolve(groups: object, model: nn.Module) -> dict[str, GroupFactors]:
    """The factors by the parameters' first names; others have 1 and 1. Raises GroupsError."""
    if isinstance(groups, str | Mapping | ParameterGroup) or not isinstance(groups, Iterable):
        raise GroupsError(f"{_CALL} must return a list of disttrain.ParameterGroup, {_got(groups)}")
    names = dict(_names(model))
    firsts = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, GroupFactors] = {}
    places: dict[str, str] = {}
    for number, group in enumerate(groups):
        place = f"{_CALL}[{number}]"
        factors = _factors(place, group)
        for parameter in _parameters(place, group, names):
            name = firsts[id(parameter)]
            if places.setdefault(name, place) != place:
                both = f"{places[name]} and {place}"
                raise GroupsError(f"the parameter '{name}' is in {both}; name it in one of them")
            found[name] = factors
    return found


def _names(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    yield from model.named_parameters(remove_duplicate=False)


def _factors(place: str, group: object) -> GroupFactors:
    if not isinstance(group, ParameterGroup):
        raise GroupsError(f"{place} must be a disttrain.ParameterGroup, {_got(group)}")
    for field in GroupFactors._fields:
        value: object = getattr(group, field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and 0 <= value < math.inf):  # type: ignore[operator]  # It is a number.
            message = f"{place}.{field} must be a finite number of at least 0, got {value!r}"
            raise GroupsError(message)
    return GroupFactors(float(group.learning_rate), float(group.weight_decay))


def _parameters(
    place: str, group: ParameterGroup, names: Mapping[str, nn.Parameter]
) -> Iterator[nn.Parameter]:
    known = {id(parameter) for parameter in names.values()}
    given: object = group.parameters
    if isinstance(given, str | nn.Parameter) or not isinstance(given, Iterable):
        message = f"{place}.parameters must be a list of names or parameters, {_got(given)}"
        raise GroupsError(message)
    for one in given:
        if isinstance(one, str):
            yield _named(place, one, names)
        elif id(one) in known:
            yield one
        else:
            message = f"{place}.parameters holds something that is no parameter of the model: "
            raise GroupsError(message + type(one).__name__)


def _named(place: str, name: str, names: Mapping[str, nn.Parameter]) -> nn.Parameter:
    if name in names:
        return names[name]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise GroupsError(f"{place} names '{name}', which is no parameter of the model{hint}")


def _got(value: object) -> str:
    return f"got {value!r}" if isinstance(value, str) else f"got a {type(value).__name__}"
