"""Values that the members of a group give each other while it forms.

In a job that is through the coordinator, which keeps them in memory only. One that is started again
has lost them, so that those who still form their group have to begin anew, as another incarnation.
"""

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.groups.errors import FormsAnew, GroupLost
from disttrain.launch import atomic_file

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
"""A member may be away for long, until a node has room for it."""

Ask = Callable[[messages.Request], messages.Reply]
"""The coordinator's answer, when it is there. Raises GroupLost, and what ends this process."""


class Rendezvous(Protocol):
    """One member's side. Belongs to one thread."""

    def put(self, key: str, value: bytes) -> None:
        """Give the others a value. Raises GroupLost."""

    def get(self, key: str) -> bytes:
        """The value that somebody gives, once it is there. Raises GroupLost."""
        ...


class FolderMeeting(Rendezvous):
    """Of processes of one machine, in a folder that is new and that only their user enters."""

    def __init__(self, folder: Path, sleep: Callable[[float], None]) -> None:
        self._folder = folder
        self._sleep = sleep

    def put(self, key: str, value: bytes) -> None:
        atomic_file.replace(self._file(key), value)

    def get(self, key: str) -> bytes:
        file = self._file(key)
        while not file.exists():
            self._sleep(_FIRST_PAUSE_SECONDS)
        return file.read_bytes()

    def _file(self, key: str) -> Path:
        # A key may have characters that no name of a file has.
        return self._folder / hashlib.sha256(key.encode()).hexdigest()


class Meeting(Rendezvous):
    """Through the coordinator, in one incarnation of the group."""

    def __init__(self, ask: Ask, member: MemberId, sleep: Callable[[float], None]) -> None:
        """`sleep` waits for so many seconds, and raises when this process is to end."""
        self._ask = ask
        self._member = member
        self._sleep = sleep
        self._coordinator: int | None = None
        """The incarnation of the coordinator that was met; None: none yet."""
        self._known: dict[str, bytes] = {}
        """Values never change, and are asked for several times."""

    def put(self, key: str, value: bytes) -> None:
        self._meet({key: base64.b64encode(value).decode()}, ())

    def get(self, key: str) -> bytes:
        """As in a rendezvous. Raises as `sleep`, too."""
        if key in self._known:
            return self._known[key]
        pause = _FIRST_PAUSE_SECONDS
        while (found := self._meet({}, (key,)).get(key)) is None:
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._known[key] = base64.b64decode(found)
        return self._known[key]

    def _meet(self, put: dict[str, str], wanted: tuple[str, ...]) -> dict[str, str]:
        reply = self._ask(messages.Meet(member=self._member, put=put, wanted=wanted))
        if not isinstance(reply, messages.Met):
            why = reply.message if isinstance(reply, messages.Refused) else reply.kind
            message = f"{self._member.name} cannot meet its group: {why}"
            raise GroupLost(message)
        self._coordinator = self._coordinator or reply.coordinator
        if reply.coordinator != self._coordinator:
            message = "the coordinator was started again while the group formed: it forms anew"
            raise FormsAnew(message)
        return reply.values
