"""Values that can be made again, kept as long as their sizes allow. Not for several threads."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """The values that were asked for last, of at most so many bytes, or whatever sizes count."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key, size: int, make: Callable[[], Value]) -> Value:
        """The value of a key; made, and kept with a size, where it is not there."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found[0]
        value = make()
        if size <= self._largest:
            self._kept[key] = value, size
            self._size += size
            self._forget()
        return value

    def _forget(self) -> None:
        while self._size > self._largest:
            _, (_, size) = self._kept.popitem(last=False)
            self._size -= size
