"""What the API server's answers mean. Pure."""

from http import HTTPStatus
from typing import Any

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
