"""What a validation error of pydantic says to the writer of a manifest. Pure."""

import difflib
from collections.abc import Callable

from pydantic import JsonValue
from pydantic_core import ErrorDetails

from disttrain.job import fields
from disttrain.job.finding import Path

LONGEST_VALUE = 60
"""Characters of a value that a message shows."""


def described(value: object) -> str:
    """Return a value and its kind as a person would say it: `'3' (text)`, `nothing (null)`."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true (boolean)" if value else "false (boolean)"
    if isinstance(value, str):
        return f"{_shortened(repr(value))} (text)"
    if isinstance(value, int | float):
        return f"{_shortened(str(value))} (number)"
    return "a mapping" if isinstance(value, dict) else "a list"


def message_for(error: ErrorDetails) -> str:
    """Return rule, value seen and remedy, without the path."""
    if error["type"] in _BOUNDS:
        words, key = _BOUNDS[error["type"]]
        bound, seen = error["ctx"][key], error["input"]
        return f"must be {words} {_number(bound)}, got {_number(seen)}"
    if error["type"] in _KINDS:
        return f"must be {_KINDS[error['type']]}, got {described(error['input'])}"
    if error["type"] in _SPECIAL:
        return _SPECIAL[error["type"]](error)
    return error["msg"]


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _number(value: float) -> str:
    return _shortened(f"{value:g}" if isinstance(value, float) else str(value))


def _choice(error: ErrorDetails) -> str:
    expected, seen = error["ctx"]["expected"], error["input"]
    names = expected.replace("'", "").replace(" or ", ", ").split(", ")
    if len(names) == 1:
        return f"must be {expected}, got {described(seen)}"
    near = difflib.get_close_matches(seen, names, 2, 0.7) if isinstance(seen, str) else []
    # Of several near ones the spelling does not tell which is meant: float16 is no float64, nor is
    # gpu cpu.
    remedy = f"; did you mean '{near[0]}'?" if len(near) == 1 else ""
    return f"must be one of {expected}, got {described(seen)}{remedy}"


def _missing(error: ErrorDetails) -> str:
    return f"required{for_example(error['loc'])}"


def for_example(path: Path) -> str:
    """Return the end of a message: an example of the field, or nothing if it has none."""
    field = fields.field_at(path)
    example: JsonValue = field.examples[0] if field and field.examples else None
    return "" if example is None else f", for example {_written(example)}"


def _written(value: JsonValue) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return str(value)


def _extra(error: ErrorDetails) -> str:
    *around, name = error["loc"]
    section = fields.section_at(tuple(around))
    return fields.unknown(str(name), fields.by_name(section) if section else ())


def _empty(error: ErrorDetails) -> str:
    return f"must not be empty, got {described(error['input'])}"


def _too_long(error: ErrorDetails) -> str:
    context, seen = error["ctx"], error["input"]
    unit = "characters" if isinstance(seen, str) else "items"
    return f"must have at most {context['max_length']} {unit}, got {len(seen)}"


_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}

_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
}

_SPECIAL: dict[str, Callable[[ErrorDetails], str]] = {
    "missing": _missing,
    "extra_forbidden": _extra,
    "literal_error": _choice,
    "enum": _choice,
    "string_too_short": _empty,
    "too_short": _empty,
    "string_too_long": _too_long,
    "too_long": _too_long,
}
