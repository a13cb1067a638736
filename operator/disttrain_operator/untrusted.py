"""Values that anybody may have written. What is not as expected is empty: never an error."""

import json
from typing import Any

_LONGEST_TEXT = 300
"""Characters kept of what others say."""

_MOST_DIGITS = 20
"""Of a number of 64 bits."""


def text(value: object) -> str:
    """The end of a text: what went wrong stands last."""
    found = value if isinstance(value, str) else ""
    return found if len(found) <= _LONGEST_TEXT else "..." + found[3 - _LONGEST_TEXT :]


def mapping(value: object, *path: str) -> dict[str, Any]:
    """The mapping at a path inside a value."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[dict[str, Any]]:
    """The mappings in a list, or none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def written(content: object) -> dict[str, Any]:
    """The mapping that a text holds as JSON."""
    try:
        return mapping(json.loads(content) if isinstance(content, str) else None)
    except (ValueError, RecursionError):
        return {}


def number(value: object) -> int:
    """The whole number, or 0; the API writes versions as text."""
    if isinstance(value, int):
        return value
    # Python refuses to read thousands of digits.
    is_number = isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS
    return int(value) if isinstance(value, str) and is_number else 0


def conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {str(each.get("type")): each for each in items(status.get("conditions"))}


def is_true(condition: dict[str, Any] | None) -> bool:
    return condition is not None and condition.get("status") == "True"
