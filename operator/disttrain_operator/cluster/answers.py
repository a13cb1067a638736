"""What the API server's answers mean, and a watch's stream of bytes, cut into events. Pure."""

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from disttrain.errors import DistTrainError
from disttrain_operator import json_text
from disttrain_operator.errors import Conflict, Forbidden, Gone, NotFound, Refused, Unavailable
from disttrain_operator.json_text import Level

_MEANINGS: dict[int, type[DistTrainError]] = {
    HTTPStatus.BAD_REQUEST: Refused,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.GONE: Gone,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Refused,
    HTTPStatus.UNPROCESSABLE_ENTITY: Refused,
}
"""Whatever else goes wrong may go well later."""

_HISTORY: Final = b',"managedFields":[{'
_END_OF_HISTORY: Final = b"}]"

_OF_THE_FUTURE = "Too large resource version"
_OTHER_UID = "metadata.uid: Invalid value"
_LONGEST_WORDS = 1000
_FIRST_WORDS = 300
"""Of those; what is wrong stands at the end, after the whole value that is."""


def read(content: bytes, status: int, request: str, jobs_at: Level | None = None) -> dict[str, Any]:
    """The object in an answer. Raises what else the answer means, with the server's words.

    `jobs_at`: where jobs are in it, whose users may have filled them with anything.
    """
    if status < HTTPStatus.BAD_REQUEST:
        return _object(content, jobs_at)
    words = _words(content, status, request)
    raise meaning(status, words)(words)


def meaning(status: int, words: str) -> type[DistTrainError]:
    """The error that a code of the API server stands for, with its words."""
    # After a restore of etcd this never comes true by waiting: versions begin again below it.
    if status == HTTPStatus.GATEWAY_TIMEOUT and _OF_THE_FUTURE in words:
        return Gone
    # A patch that names the uid of an object which was replaced counts as a change of its uid.
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and _OTHER_UID in words:
        return Conflict
    return _MEANINGS.get(status, Unavailable)


def _object(content: bytes, jobs_at: Level | None) -> dict[str, Any]:
    try:
        found = json_text.read_jobs(content, jobs_at)
    except ValueError as error:
        message = f"the API server's answer is no JSON: {content[:100]!r}"
        raise Unavailable(message) from error
    return found if isinstance(found, dict) else {}


def _words(content: bytes, status: int, request: str) -> str:
    try:
        said = str(json_text.read(content)["message"])
    except (ValueError, KeyError, TypeError):
        said = content[:200].decode(errors="replace")
    if len(said) > _LONGEST_WORDS:
        said = f"{said[:_FIRST_WORDS]} ... {said[_FIRST_WORDS - _LONGEST_WORDS :]}"
    return f"{said} ({status} to {request})"


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


def _without_history(line: bytes) -> Any:
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
        found = _without_history(line)
        kind, body = EventType(found["type"]), found["object"]
        if kind is not EventType.ERROR:
            return Event(kind, body, str(body["metadata"]["resourceVersion"]))
        code, words = body.get("code"), body.get("message")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"a watch told what is no event: {line[:100]!r}"
        raise Unavailable(message) from error
    is_gone = meaning(code, str(words)) is Gone
    raise (Gone if is_gone else Unavailable)(f"{words} ({code} in a watch)")
