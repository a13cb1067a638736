"""What the launcher takes from a status of the coordinator, asked for or left in status.json."""

from pathlib import Path

from pydantic import BaseModel, ValidationError

from disttrain.launch.outcome import Result
from disttrain.launcher.hangs import Hang, Heard

_DEAD = "dead"


class _Member(BaseModel):
    name: str
    state: str
    pid: int
    reason: str


class Told(BaseModel):
    """Other fields of a status are left alone."""

    phase: str = ""
    members: tuple[_Member, ...] = ()
    checkpoint: int | None = None
    """Number of the latest that was saved."""

    @property
    def has_ended(self) -> bool:
        return self.phase in set(Result)

    @property
    def heard(self) -> Heard:
        dead = (each for each in self.members if each.state == _DEAD)
        return Heard(
            dead=tuple(Hang(each.name, each.pid, each.reason) for each in dead),
            joined=frozenset((each.name, each.pid) for each in self.members),
        )

    def has_joined(self, name: str, pid: int) -> bool:
        """Whether this process has been a member, so that it was told of the job's end."""
        return (name, pid) in self.heard.joined


def read(path: Path) -> Told | None:
    """The status in a file; None without one."""
    try:
        return Told.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
