"""How a process tells the launcher why it must not be started again: a small JSON file."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from disttrain.launch import atomic_file


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An error that a restart cannot heal."""

    kind: str
    """Name of the error's class."""
    message: str
    """For the user: what was wrong and the remedy; may have several lines."""


_FAILURE = TypeAdapter(Failure)

LONGEST_MESSAGE = 32_000
"""Characters; the coordinator takes 65,536 in a text."""


def write(path: Path, error: BaseException) -> None:
    """Write the error into `path`, atomically."""
    message = str(error)[:LONGEST_MESSAGE] or type(error).__name__
    failure = Failure(kind=type(error).__name__, message=message)
    atomic_file.replace(path, _FAILURE.dump_json(failure, indent=1))


def read(path: Path) -> Failure | None:
    """The failure in `path`; None without such a file or when it is not whole."""
    try:
        return _FAILURE.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
