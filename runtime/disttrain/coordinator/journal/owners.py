"""Who may decide: of all coordinators that claimed a journal, the newest.

A claim is a number that nobody else gets, and says whose it is. A coordinator claims before it
replays, and the older one looks for newer claims before it answers, begins a new file or commits a
checkpoint: so what it told anybody is in what the newer one replays. Pure, but for `OwnerFolder`.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from disttrain.checkpoint import durable
from disttrain.coordinator.errors import Superseded

FOLDER = "owners"
LONGEST_BYTES = 1000
"""Of a claim's content."""
_KEPT = 32
"""Claims, so that a place that was replaced long ago is known again."""


def old(claims: Iterable[int]) -> list[int]:
    return sorted(claims)[:-_KEPT]


def require_newest(mine: int, claims: Iterable[int]) -> None:
    """Raise Superseded unless no claim is newer than mine."""
    newest = max(claims, default=0)
    if newest > mine:
        message = (
            f"a newer coordinator of this job has taken over (claim {newest}, this one has "
            f"{mine}); whoever is connected to this one has to find that"
        )
        raise Superseded(message)


def require_not_replaced(identity: str, claims: Mapping[int, str]) -> None:
    """Raise Superseded if this place, perhaps in an earlier life, was followed by another one.

    Else two coordinators, of which each is started again, would take over from each other for ever.
    """
    mine = max((number for number, whose in claims.items() if whose == identity), default=0)
    others = {number for number, whose in claims.items() if whose != identity}
    if mine:
        require_newest(mine, others)


class OwnerFolder:
    """The claims on a folder: one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def claim(self, identity: str) -> int:
        """A new claim; its number. Raises Superseded, OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            claims = {number: self._whose(number) for number in self.numbers()}
            require_not_replaced(identity, claims)
            number = 1 + max(claims, default=0)
            try:
                self._create(number, identity)
            except FileExistsError:
                continue
            for each in old(claims):
                self._path(each).unlink(missing_ok=True)
            return number

    def numbers(self) -> set[int]:
        """All claims. Raises OSError."""
        with os.scandir(self._folder) as found:
            return {int(each.name) for each in found if each.name.isdecimal()}

    def _create(self, number: int, identity: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self._path(number), flags, 0o600)
        try:
            os.write(descriptor, identity.encode()[:LONGEST_BYTES])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        durable.sync_folder(self._folder)

    def _whose(self, number: int) -> str:
        with self._path(number).open("rb") as file:
            return file.read(LONGEST_BYTES).decode(errors="replace")

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}"
