"""What the API server's answers mean. Pure."""

from http import HTTPStatus
from typing import Any

from disttrain.errors import DistTrainError
from disttrain_operator import json_text
from disttrain_operator.errors import Conflict, Forbidden, Gone, NotFound, Refused, Unavailable

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

_LONGEST_WORDS = 1000


def read(content: bytes, status: int, request: str) -> dict[str, Any]:
    """The object in an answer. Raises what else the answer means, with the server's words."""
    if status < HTTPStatus.BAD_REQUEST:
        return _object(content)
    raise _MEANINGS.get(status, Unavailable)(_words(content, status, request))


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json_text.read(content)
    except ValueError as error:
        message = f"the API server's answer is no JSON: {content[:100]!r}"
        raise Unavailable(message) from error
    return found if isinstance(found, dict) else {}


def _words(content: bytes, status: int, request: str) -> str:
    try:
        said = str(json_text.read(content)["message"])
    except (ValueError, KeyError, TypeError):
        said = content[:200].decode(errors="replace")
    return f"{said[:_LONGEST_WORDS]} ({status} to {request})"
