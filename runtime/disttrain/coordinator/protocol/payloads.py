"""Messages as the payloads of control messages: JSON and back, with limits before trust.

Requests travel in CONTROL_REQUEST, replies in CONTROL_REPLY (same `sequence`), commands in
CONTROL_COMMAND (`sequence` is the command's id, the payload one `commands.NumberedCommand`).
Parsing is strict.
"""

from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from disttrain.coordinator.errors import MessageRefused, MessageTooLong
from disttrain.coordinator.protocol.commands import NumberedCommand
from disttrain.coordinator.protocol.messages import Reply, Request
from disttrain.coordinator.protocol.notices import Notice

LIMIT_BYTES = 8 * 1024 * 1024
"""No control payload is longer; 8 MiB describe about 40,000 tensors."""

_Message = TypeVar("_Message")

_NUMBERS = ConfigDict(ser_json_inf_nan="constants")
_REQUEST: TypeAdapter[Request] = TypeAdapter(Request, config=_NUMBERS)
_NOTICE: TypeAdapter[Notice] = TypeAdapter(Notice, config=_NUMBERS)
_REPLY: TypeAdapter[Reply] = TypeAdapter(Reply, config=_NUMBERS)
_COMMAND: TypeAdapter[NumberedCommand] = TypeAdapter(NumberedCommand)


def encode_request(request: Request) -> bytes:
    """Raises `MessageTooLong`."""
    payload = _REQUEST.dump_json(request)
    if len(payload) > LIMIT_BYTES:
        message = (
            f"a request of kind {request.kind} has {len(payload)} bytes, and at most {LIMIT_BYTES} "
            "are taken; for a join: the model has too many tensors, or replicas were started again "
            "so often that their incarnations do not fit: begin a new run from the last checkpoint"
        )
        raise MessageTooLong(message)
    return payload


def encode_notice(notice: Notice) -> bytes:
    return _NOTICE.dump_json(notice)


def encode_reply(reply: Reply) -> bytes:
    return _REPLY.dump_json(reply)


def encode_command(command: NumberedCommand) -> bytes:
    return _COMMAND.dump_json(command)


def parse_request(payload: bytes | memoryview) -> Request:
    """A request from the network; raises `MessageRefused`."""
    return _parse(_REQUEST, payload)


def parse_notice(content: bytes) -> Notice:
    """From a file; raises `MessageRefused`."""
    return _parse(_NOTICE, content)


def parse_reply(payload: bytes | memoryview) -> Reply:
    """A reply from the network; raises `MessageRefused`."""
    return _parse(_REPLY, payload)


def parse_command(payload: bytes | memoryview) -> NumberedCommand:
    """A command from the network; raises `MessageRefused`."""
    return _parse(_COMMAND, payload)


def _parse(adapter: TypeAdapter[_Message], payload: bytes | memoryview) -> _Message:
    if len(payload) > LIMIT_BYTES:
        message = f"control payload of {len(payload)} bytes; at most {LIMIT_BYTES} are taken"
        raise MessageRefused(message)
    try:
        return adapter.validate_json(bytes(payload), strict=True)
    except (ValidationError, RecursionError) as error:
        message = f"control payload of {len(payload)} bytes is no valid message: {_first(error)}"
        raise MessageRefused(message) from error


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return type(error).__name__
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:500]
