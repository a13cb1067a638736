"""JSON, fast: thousands of jobs bring a million objects. The only module that imports orjson."""

from typing import Any

import orjson


def read(text: bytes | str) -> Any:
    """The value in a text. Raises ValueError."""
    return orjson.loads(text)


def write(value: Any, *, in_order: bool = False) -> bytes:
    """The shortest text of a value; names may be of an enum. `in_order`: equal ones have one."""
    order = orjson.OPT_SORT_KEYS if in_order else 0
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | order)
