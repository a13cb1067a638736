"""Finds what a package holds, so that a new module there is known without being named."""

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar, cast

Base = TypeVar("Base")


def modules(package: str) -> tuple[ModuleType, ...]:
    """The modules of a package, in the order of their names."""
    path = importlib.import_module(package).__path__
    names = sorted(f"{package}.{module.name}" for module in pkgutil.iter_modules(path))
    return tuple(map(importlib.import_module, names))


def found(package: str, base: Callable[..., Base]) -> tuple[type[Base], ...]:
    """The subclasses of a type that modules of a package define, in the order of their names.

    The type may be an abstract one, which mypy takes for no `type`.
    """
    kind = cast(type[Base], base)
    return tuple(
        value
        for module in modules(package)
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
    )
