"""A watch's stream of bytes, cut into events. Pure."""

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from disttrain_operator import json_text
from disttrain_operator.cluster import answers
from disttrain_operator.errors import Gone, Unavailable

_HISTORY: Final = b',"managedFields":[{'
_END_OF_HISTORY: Final = b"}]"


class EventType(StrEnum):
    """What a watch tells of an object."""

    ADDED = "ADDED"
    """It is there: new, or for the first time within the selector."""
    MODIFIED = "MODIFIED"
    """It is another than before."""
    DELETED = "DELETED"
    """It is gone, or no longer within the selector."""
    BOOKMARK = "BOOKMARK"
    """Nothing happened until the version that is told."""
    ERROR = "ERROR"
    """The watch cannot go on; the object says why."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch."""

    type: EventType
    body: dict[str, Any]
    version: str
    """From where a later watch goes on."""


class Lines:
    """Whole lines out of pieces as they come; an object may be longer than any piece."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def add(self, piece: bytes) -> list[bytes]:
        """Take in a piece; returns the lines that are whole now, without their ends."""
        if b"\n" not in piece:
            self._rest.append(piece)
            return []
        *whole, rest = b"".join([*self._rest, piece]).split(b"\n")
        self._rest = [rest] if rest else []
        return [line for line in whole if line]


def _read(line: bytes) -> Any:
    """The value in a line without who wrote which field: half of it, and nobody here reads it."""
    before, found, rest = line.partition(_HISTORY)
    _, end, after = rest.partition(_END_OF_HISTORY)
    if found and end:
        # No other array stands in that one, but its end may stand in a name that a user chose.
        # What is cut there is no JSON: the quotes of such a name have backslashes.
        with suppress(ValueError):
            return json_text.read(before + after)
    return json_text.read(line)


def event(line: bytes) -> Event:
    """The event in a line. Raises Gone or Unavailable for one that ends the watch."""
    try:
        found = _read(line)
        kind, body = EventType(found["type"]), found["object"]
        if kind is not EventType.ERROR:
            return Event(kind, body, str(body["metadata"]["resourceVersion"]))
        code, words = body.get("code"), body.get("message")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"a watch told what is no event: {line[:100]!r}"
        raise Unavailable(message) from error
    is_gone = answers.meaning(code, str(words)) is Gone
    raise (Gone if is_gone else Unavailable)(f"{words} ({code} in a watch)")
