"""Plain values as text, and the same values again, bit for bit."""

from types import GenericAlias
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter

Value = TypeVar("Value")


class JsonForm(Generic[Value]):
    """Of values of one type."""

    def __init__(self, kind: type[Value]) -> None:
        # Settings are not taken for a dataclass itself, but for a tuple that holds one.
        alone: Any = GenericAlias(tuple, (kind,))
        config = ConfigDict(ser_json_inf_nan="constants")
        self._adapter: TypeAdapter[tuple[Value]] = TypeAdapter(alone, config=config)

    def write(self, value: Value) -> bytes:
        return self._adapter.dump_json((value,))

    def read(self, content: bytes) -> Value:
        """The value. Raises pydantic's ValidationError."""
        (value,) = self._adapter.validate_json(content, strict=True)
        return value
