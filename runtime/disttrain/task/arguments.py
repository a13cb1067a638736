"""Compares the manifest's arguments with the constructor of the task. Pure."""

import difflib
import inspect
from collections.abc import Iterator, Mapping
from inspect import Parameter

from disttrain.task.errors import ArgumentsError
from disttrain.task.task import Task

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def check_arguments(task_class: type[Task], given: Mapping[str, object]) -> None:
    """Raise ArgumentsError with every unknown and every missing argument, one per line."""
    parameters = inspect.signature(task_class).parameters
    taken = {name: value for name, value in parameters.items() if value.kind in _BY_NAME}
    findings = list(_missing(task_class, taken, given))
    if all(value.kind is not Parameter.VAR_KEYWORD for value in parameters.values()):
        findings = [*_unknown(task_class, taken, given), *findings]
    if findings:
        raise ArgumentsError("\n".join(findings))


def _unknown(
    task_class: type[Task], taken: Mapping[str, Parameter], given: Mapping[str, object]
) -> Iterator[str]:
    for name in given:
        if name not in taken:
            yield (
                f"spec.task.arguments.{name}: {task_class.__name__} takes no such argument"
                f"{_remedy(name, taken)}"
            )


def _remedy(name: str, taken: Mapping[str, Parameter]) -> str:
    if not taken:
        return "; it takes none"
    near = difflib.get_close_matches(name, taken, n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; it takes {', '.join(taken)}"


def _missing(
    task_class: type[Task], taken: Mapping[str, Parameter], given: Mapping[str, object]
) -> Iterator[str]:
    for name, parameter in taken.items():
        if parameter.default is Parameter.empty and name not in given:
            yield f"spec.task.arguments.{name}: required by {task_class.__name__}"
