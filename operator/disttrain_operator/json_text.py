"""JSON, fast: thousands of jobs bring a million objects. The only module that imports orjson."""

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

import orjson

from disttrain.job import document

LARGEST_SPEC_BYTES: Final = 64 * 1024
"""Of a job's spec as JSON; what it holds takes up to 35 times as much memory once it is read."""

_LARGEST_STATUS_BYTES: Final = 128 * 1024
_DEEPEST: Final = 200
"""Levels below a spec; the parser gives up at 1,024, the writer at 254."""

_MOST_BRACKETS: Final = 1_000
"""An answer with fewer is not deep enough for the parser to give up, whatever it holds."""

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"(?P<colon>\s*+:\s*+)?|[\[\]{}]', re.DOTALL)
_LIMITS: Final = {b'"spec"': LARGEST_SPEC_BYTES, b'"status"': _LARGEST_STATUS_BYTES}
_HISTORY: Final = b'"managedFields"'
_QUOTE, _OPENING = ord('"'), (ord("["), ord("{"))


class Level(IntEnum):
    """How many brackets are open around the fields of an object."""

    OBJECT = 1
    """The text is the object."""
    EVENT = 2
    """It is in an event of a watch."""
    LIST = 3
    """It is in the items of a list."""


def read(text: bytes | str) -> Any:
    """The value in a text. Raises ValueError."""
    return orjson.loads(text)


def write(value: Any, *, in_order: bool = False) -> bytes:
    """The shortest text of a value; names may be of an enum. `in_order`: equal ones have one."""
    order = orjson.OPT_SORT_KEYS if in_order else 0
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | order)


def read_jobs(text: bytes, level: Level | None) -> Any:
    """The value in a text in which jobs are, at a level, or none are. Raises ValueError.

    Users fill jobs with what they like: a spec or a status that is too large or too deep is
    replaced by a text that says so, before it is parsed.
    """
    return orjson.loads(text if level is None else without_excess(text, level))


def without_excess(text: bytes, level: Level) -> bytes:
    """The same text with what `read_jobs` replaces replaced."""
    if len(text) <= LARGEST_SPEC_BYTES and text.count(b"[") + text.count(b"{") <= _MOST_BRACKETS:
        return text
    kept, end = [], 0
    for first, after, instead in _excess(text, level):
        kept += [text[end:first], instead]
        end = after
    return b"".join([*kept, text[end:]])


def _excess(text: bytes, level: Level) -> Iterator[tuple[int, int, bytes]]:
    """What is to be replaced: from where, to where, by what."""
    depth, deepest, first, key = 0, 0, -1, b""
    for token in _TOKEN.finditer(text):
        mark = text[token.start()]
        if mark == _QUOTE:
            if first < 0 and token["colon"] and level <= depth <= level + 1:
                key = token[0][: -len(token["colon"])]
            continue
        if mark in _OPENING:
            if first < 0 and _is_limited(key, depth - level):
                first, deepest = token.start(), depth
            depth += 1
            deepest = max(deepest, depth)
            continue
        depth -= 1
        if first >= 0 and depth <= level + (key == _HISTORY):
            instead = _instead(key, token.end() - first, deepest - depth)
            if instead:
                yield first, token.end(), instead
            first, key = -1, b""


def _is_limited(key: bytes, below: int) -> bool:
    return (key in _LIMITS and below == 0) or (key == _HISTORY and below == 1)


def _instead(key: bytes, num_bytes: int, levels: int) -> bytes:
    if key == _HISTORY:
        # Half of an object, and nobody here reads it.
        return b"null"
    if num_bytes > _LIMITS[key]:
        return b'"must be at most %d bytes as JSON, got %d"' % (_LIMITS[key], num_bytes)
    if levels > _DEEPEST:
        return b'"%s"' % document.TOO_DEEP.encode()
    return b""
