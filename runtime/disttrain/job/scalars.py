"""Unquoted YAML texts to null, booleans, numbers and texts, by the core schema of YAML 1.2. Pure.

So `no`, `1:30`, `010` and `2024-01-01` are texts and 1e-3 is a number, unlike in YAML 1.1.
"""

import math
import re

Scalar = None | bool | int | float | str

MAX_DIGITS = 300
"""Digits of a whole number. A float reaches 308; Python itself gives up at 4300."""

_WORDS: dict[str, bool | None] = {"": None, "~": None}
for _spelled in (str.lower, str.capitalize, str.upper):
    _WORDS |= {_spelled("null"): None, _spelled("true"): True, _spelled("false"): False}

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_INTEGER_WITH_BASE = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def parse_scalar(text: str) -> Scalar:
    """Return the value of an unquoted text. ValueError, with the reason, for NaN and too much."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) or _INTEGER_WITH_BASE.fullmatch(text):
        return _whole_number(text)
    if _NOT_FINITE.fullmatch(text):
        return _finite_number(text, math.nan)
    if _FLOAT.fullmatch(text):
        return _finite_number(text, float(text))
    return text


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        message = f"must have at most {MAX_DIGITS} digits, got {len(text)}"
        raise ValueError(message)
    return int(text, 0)


def _finite_number(text: str, number: float) -> float:
    if math.isfinite(number):
        return number
    message = f"must be a finite number, got {text}"
    raise ValueError(message)
