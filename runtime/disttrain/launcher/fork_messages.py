"""What the launcher and a fork server say to each other: one JSON text per packet.

Messages are told apart by their fields: no two have the same.
"""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

LARGEST_BYTES = 64 * 1024
"""A packet holds a few paths."""


class _Strict:
    """Base of all messages: unknown fields are refused."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Start(_Strict):
    """Fork a process that runs the role in the launch config. Answer `Started`, later `Ended`."""

    name: str
    config: str
    log: str
    """File that gets its standard output and error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preload(_Strict):
    """Import the user's module once, for all processes forked later. Answer `Preloaded`."""

    libraries: tuple[str, ...] = ()
    """Modules to import before it; one that raises is left to whoever needs it."""
    module: str
    folder: str
    """Put in front of sys.path."""


Command = Start | Preload


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready(_Strict):
    """The server has imported what every process needs."""

    threads: int
    """Threads that it has; forking is only sound with one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preloaded(_Strict):
    """The user's module was imported, or not: then the replicas meet and tell the error."""

    threads: int
    error: str
    """Empty if there was none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Started(_Strict):
    """A process runs."""

    name: str
    pid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended(_Strict):
    """A process has ended and with it everything that it started."""

    name: str
    pid: int
    """0: it could not be forked."""
    code: int
    """Exit code, or minus the signal."""


Event = Ready | Preloaded | Started | Ended

COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)
EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
