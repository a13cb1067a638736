"""Objects in memory whose requests fail as those of a network do."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from disttrain.checkpoint.errors import AlreadyThere, Corrupt, NotWritten
from disttrain.checkpoint.objects import Objects


class Fault(Enum):
    """What becomes of one request that changes something."""

    REFUSED = auto()
    """It is not carried out, and its sender knows."""
    ANSWER_LOST = auto()
    """It is carried out, and its sender is told that it failed."""
    LATE = auto()
    """Its sender gives up, and it is carried out when `arrive` is called."""


@dataclass
class FlakyObjects(Objects):
    """Writes meet `faults`, in this order; None is a good one, as are those behind the last.

    Deletions meet `delete_faults` so.
    """

    faults: list[Fault | None] = field(default_factory=list)
    delete_faults: list[Fault | None] = field(default_factory=list)
    there: dict[str, bytes] = field(default_factory=dict)
    uri: str = "flaky://store"
    is_conditional: bool = True
    """Whether it refuses to create what is there, also when that arrives late."""
    _late: list[Callable[[], None]] = field(default_factory=list)

    def sizes(self, folder: str) -> dict[str, int]:
        return {n: len(c) for n, c in self.there.items() if n.startswith(f"{folder}/")}

    def read(self, name: str, limit_bytes: int) -> bytes:
        if name not in self.there:
            raise Corrupt(name, "it is missing")
        return self.there[name][:limit_bytes]

    def read_all(self, sizes: Mapping[str, int]) -> dict[str, bytes]:
        return {name: self.read(name, size) for name, size in sizes.items()}

    def download(self, name: str, file: Path, expected_bytes: int | None = None) -> None:
        content = self.there[name]
        assert expected_bytes in {None, len(content)}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def write(self, name: str, content: bytes) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault in {None, Fault.ANSWER_LOST}:
            self.there[name] = content
        if fault is Fault.LATE:
            self._late.append(lambda: self._put_late(name, content))
        if fault is not None:
            message = f"{name} could not be written: {fault.name}"
            raise NotWritten(message)

    def create(self, name: str, content: bytes) -> None:
        if name in self.there and self.is_conditional:
            message = f"{name} is there already"
            raise AlreadyThere(message)
        self.write(name, content)

    def upload(self, file: Path, name: str) -> None:
        self.write(name, file.read_bytes())

    def delete(self, names: Iterable[str]) -> frozenset[str]:
        asked = frozenset(names)
        fault = self.delete_faults.pop(0) if self.delete_faults else None
        if fault in {None, Fault.ANSWER_LOST}:
            self._forget(asked)
        if fault is Fault.LATE:
            self._late.append(lambda: self._forget(asked))
        return frozenset() if fault is None else asked

    def _put_late(self, name: str, content: bytes) -> None:
        if not (self.is_conditional and name in self.there):
            self.there[name] = content

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.there.pop(name, None)

    def arrive(self) -> None:
        """What came late is there now."""
        for late in self._late:
            late()
        self._late.clear()
