"""Farewells that nobody heard: what a member that leaves writes down while there is no coordinator.

The next life of the coordinator takes them as if they had been said: the rest of a replica's work
goes to others at once, and nothing that it did is done again. They lie where all processes of the
job reach: in the run's folder, or in the job's object store, whose pods share no folder.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Final, Protocol

from disttrain.checkpoint import object_names, objects
from disttrain.checkpoint.errors import CheckpointError
from disttrain.checkpoint.objects import Objects
from disttrain.coordinator.errors import MessageRefused
from disttrain.coordinator.protocol import payloads
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.messages import Leave
from disttrain.launch import atomic_file
from disttrain.launch.config import LaunchConfig
from disttrain.launch.run_folder import RunFolder
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_SUFFIX = ".json"


class Farewells(Protocol):
    """Those of one job. Nothing here raises; each call may take as long as the store does."""

    @property
    def pause_seconds(self) -> float:
        """Between two looks at what is there."""

    def write(self, leave: Leave) -> None:
        """Leave it for the next life. Where that is impossible, it is a death without one."""

    def read(self) -> dict[str, Leave]:
        """Those that are there, by name; what is none is told of and forgotten.

        `forget` each once it is journaled.
        """

    def forget(self, name: str) -> None:
        """Delete it. One that stays is heard again, which changes nothing."""


def open_farewells(config: LaunchConfig) -> Farewells:
    """Where all processes of this job look for them; nothing is asked of an object store yet."""
    uri = config.checkpoints.uri
    if uri:
        return ObjectFarewells(partial(objects.open_objects, uri))
    return FolderFarewells(RunFolder(config.run_folder).farewells)


class FolderFarewells:
    """A file each, in a folder which needs not exist."""

    pause_seconds: Final = 2.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, leave: Leave) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / _name(leave.member)
            atomic_file.replace(path, payloads.encode_request(leave))
        except OSError as error:
            LOG.warning("left without a word", reason=error)

    def read(self) -> dict[str, Leave]:
        contents: dict[str, bytes] = {}
        for path in self._folder.glob(f"[!.]*{_SUFFIX}"):
            try:
                contents[path.name] = path.read_bytes()
            except OSError as error:
                LOG.warning("a farewell cannot be read", name=path.name, reason=error)
        return _parsed(contents, self.forget)

    def forget(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("a farewell stays", name=name, reason=error)


class ObjectFarewells:
    """An object each."""

    pause_seconds: Final = 10.0
    """Each look is a request, which is paid for."""

    def __init__(self, open_objects: Callable[[], Objects]) -> None:
        self._open_objects = open_objects

    @cached_property
    def _objects(self) -> Objects:
        # Slow to open, and few members ever leave so.
        return self._open_objects()

    def write(self, leave: Leave) -> None:
        name = f"{object_names.FAREWELLS}/{_name(leave.member)}"
        try:
            self._objects.write(name, payloads.encode_request(leave))
        except CheckpointError as error:
            LOG.warning("left without a word", reason=error)

    def read(self) -> dict[str, Leave]:
        try:
            there = self._objects.sizes(object_names.FAREWELLS)
            sizes = {name: size for name, size in there.items() if size <= payloads.LIMIT_BYTES}
            contents = self._objects.read_all(sizes)
        except CheckpointError as error:
            LOG.warning("farewells cannot be read", reason=error)
            return {}
        return _parsed(contents, self.forget)

    def forget(self, name: str) -> None:
        self._objects.delete([name])


def _name(member: MemberId) -> str:
    return f"{member.role.name.lower()}-{member.index}.i{member.incarnation}{_SUFFIX}"


def _parsed(contents: Mapping[str, bytes], forget: Callable[[str], None]) -> dict[str, Leave]:
    found: dict[str, Leave] = {}
    for name in sorted(contents):
        try:
            found[name] = _leave(contents[name])
        except MessageRefused as error:
            LOG.warning("a farewell cannot be read", name=name, reason=error)
            forget(name)
    return found


def _leave(content: bytes) -> Leave:
    parsed = payloads.parse_request(content)
    if isinstance(parsed, Leave):
        return parsed
    message = f"it is no farewell, but {type(parsed).__name__}"
    raise MessageRefused(message)
