"""How deep a manifest may be, and how many values it may hold, checked without recursion. Pure."""

from collections.abc import Iterable

from pydantic import JsonValue

MAX_DEPTH = 50
"""Levels of nesting; a manifest has about 8."""

MAX_VALUES = 5_000
"""Values after the expansion of aliases, so that a few lines cannot fill the memory, and so that
no file takes more than about a second to read."""

TOO_DEEP = f"more than {MAX_DEPTH} levels of nesting"
TOO_MANY = f"more than {MAX_VALUES} values"


def exceeded(value: JsonValue) -> str | None:
    """What is too much about a value; None if it is within the limits."""
    level, num_values = [value], 0
    for _ in range(MAX_DEPTH + 1):
        num_values += len(level)
        if num_values > MAX_VALUES:
            return TOO_MANY
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return None
    return TOO_DEEP


def _inner(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
