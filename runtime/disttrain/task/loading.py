"""Finds the user's class by `module:Class` and makes the task from the manifest's arguments."""

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from types import ModuleType

from disttrain.task import user_code
from disttrain.task.errors import ArgumentsError, EntrypointError, UserCodeError
from disttrain.task.task import Task

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def load_task(entrypoint: str, given: Mapping[str, object], folder: Path) -> Task:
    """Return the task of `module:Class`, made with the arguments `given`.

    The module is looked up in `folder` first, which stays at the front of sys.path, so that what
    the module imports later is found too. Raises a TaskError.
    """
    module_name, _, class_name = entrypoint.partition(":")
    task_class = _task_class(_module(module_name, folder), class_name)
    check_arguments(task_class, given)
    with user_code.running(f"{class_name}(...)"):
        return task_class(**given)


def _module(name: str, folder: Path) -> ModuleType:
    _put_first(folder)
    importlib.invalidate_caches()
    try:
        with user_code.running(f"importing '{name}'"):
            module = importlib.import_module(name)
    except UserCodeError as error:
        if _is_absence_of(name, error.__cause__):
            raise _module_not_found(name, folder) from None
        raise
    _check_not_shadowed(module, name, folder)
    return module


def _put_first(folder: Path) -> None:
    place = str(folder.resolve())
    if place in sys.path:
        sys.path.remove(place)
    sys.path.insert(0, place)


def _is_absence_of(module_name: str, error: BaseException | None) -> bool:
    """Tell "there is no such module" from "the module imports one that is not there"."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return False
    return module_name == error.name or module_name.startswith(f"{error.name}.")


def _module_not_found(name: str, folder: Path) -> EntrypointError:
    near = _nearest(name, (file.stem for file in folder.glob("*.py")))
    message = (
        f"spec.task.entrypoint: there is no module '{name}' in {folder.resolve()} nor among the "
        f"installed packages{near}"
    )
    return EntrypointError(message)


def _check_not_shadowed(module: ModuleType, name: str, folder: Path) -> None:
    """Refuse a module of the same name from elsewhere: it was imported before, e.g. `json`."""
    # The file itself may be a link, as those of a mounted ConfigMap are.
    own = folder.joinpath(*name.split(".")).with_suffix(".py").resolve()
    if own.exists() and (module.__file__ is None or Path(module.__file__).resolve() != own):
        message = (
            f"spec.task.entrypoint: '{name}' is already the module {module.__file__}; "
            f"give {own} another name"
        )
        raise EntrypointError(message)


def _task_class(module: ModuleType, class_name: str) -> type[Task]:
    found: object = getattr(module, class_name, None)
    if found is None:
        near = _nearest(class_name, _classes_of(module))
        message = f"spec.task.entrypoint: {module.__file__} defines no '{class_name}'{near}"
        raise EntrypointError(message)
    if not isinstance(found, type) or not issubclass(found, Task):
        message = (
            f"spec.task.entrypoint: '{class_name}' in {module.__file__} must be a class that "
            "extends disttrain.Task"
        )
        raise EntrypointError(message)
    if inspect.isabstract(found):
        lacking = ", ".join(f"{name}()" for name in sorted(found.__abstractmethods__))
        message = f"spec.task.entrypoint: '{class_name}' in {module.__file__} lacks {lacking}"
        raise EntrypointError(message)
    return found


def _classes_of(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _nearest(name: str, candidates: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(candidates), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def check_arguments(task_class: type[Task], given: Mapping[str, object]) -> None:
    """Raise ArgumentsError with every unknown and every missing argument, one per line."""
    parameters = inspect.signature(task_class).parameters
    taken = {name: value for name, value in parameters.items() if value.kind in _BY_NAME}
    takes_any = any(value.kind is Parameter.VAR_KEYWORD for value in parameters.values())
    unknown = [] if takes_any else [name for name in given if name not in taken]
    missing = [
        name
        for name, parameter in taken.items()
        if parameter.default is Parameter.empty and name not in given
    ]
    findings = [
        *(
            f"{name}: {task_class.__name__} takes no such argument{_remedy(name, taken)}"
            for name in unknown
        ),
        *(f"{name}: required by {task_class.__name__}" for name in missing),
    ]
    if findings:
        raise ArgumentsError("\n".join(f"spec.task.arguments.{each}" for each in findings))


def _remedy(name: str, taken: Iterable[str]) -> str:
    return _nearest(name, taken) or f"; it takes {', '.join(taken) or 'none'}"
