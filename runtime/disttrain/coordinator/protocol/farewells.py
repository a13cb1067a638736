"""Farewells that nobody heard: what a member that leaves writes down while there is no coordinator.

The next life of the coordinator takes them as if they had been said: the rest of a replica's work
goes to others at once, and nothing that it did is done again.
"""

from pathlib import Path

from disttrain.coordinator.errors import MessageRefused
from disttrain.coordinator.protocol import payloads
from disttrain.coordinator.protocol.messages import Leave
from disttrain.launch import atomic_file
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_SUFFIX = ".json"


def write(folder: Path, leave: Leave) -> None:
    """Leave it in the run's folder for farewells. A full disk makes it a death without one."""
    member = leave.member
    name = f"{member.role.name.lower()}-{member.index}.i{member.incarnation}{_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_file.replace(folder / name, payloads.encode_request(leave))
    except OSError as error:
        LOG.warning("left without a word", reason=error)


def read(folder: Path) -> dict[Path, Leave]:
    """Those that are there; what is none is left out. `forget` each once it is journaled."""
    found: dict[Path, Leave] = {}
    for path in sorted(folder.glob(f"[!.]*{_SUFFIX}")):
        try:
            parsed = payloads.parse_request(path.read_bytes())
        except (OSError, MessageRefused) as error:
            LOG.warning("a farewell cannot be read", file=path, reason=error)
            continue
        if isinstance(parsed, Leave):
            found[path] = parsed
    return found


def forget(path: Path) -> None:
    """Delete it. One that stays is heard again, which changes nothing."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        LOG.warning("a farewell stays", file=path, reason=error)
