"""Who may decide: of all coordinators that claimed a journal, the newest.

A claim is a number that nobody else gets, and says whose it is. A coordinator claims before it
replays, and the older one looks for newer claims before it answers, begins a new file or commits a
checkpoint: so what it told anybody is in what the newer one replays.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from disttrain.checkpoint import names
from disttrain.checkpoint.blobs import Blobs
from disttrain.checkpoint.errors import AlreadyThere, CheckpointError
from disttrain.coordinator.errors import Superseded

LONGEST_BYTES = 1000
"""Of a claim's content."""
_KEPT = 32
"""Claims, so that a place that was replaced long ago is known again."""


def require_newest(mine: int, claims: Iterable[int]) -> None:
    newest = max(claims, default=0)
    if newest > mine:
        message = (
            f"a newer coordinator of this job has taken over (claim {newest}, this one has "
            f"{mine}); whoever is connected to this one has to find that"
        )
        raise Superseded(message)


def require_not_replaced(identity: str, claims: Mapping[int, str]) -> None:
    """Raise Superseded if this place, perhaps an earlier incarnation, was followed by another.

    Else two coordinators, of which each is started again, would take over from each other for ever.
    """
    mine = max((number for number, whose in claims.items() if whose == identity), default=0)
    others = {number for number, whose in claims.items() if whose != identity}
    if mine:
        require_newest(mine, others)


class Claims:
    """The claims on one journal, one blob each. Raises as `Blobs` do."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.mine = 0
        """0: nobody else is looked for."""

    def claim(self, identity: str) -> None:
        """Take a new one. Raises Superseded."""
        while True:
            claims = {number: self._whose(number) for number in self.numbers()}
            require_not_replaced(identity, claims)
            number = 1 + max(claims, default=0)
            with suppress(AlreadyThere):
                self._blobs.create(_name(number), identity.encode()[:LONGEST_BYTES])
                break
        self._blobs.delete(map(_name, sorted(claims)[:-_KEPT]))
        self.mine = number

    def is_newest(self) -> bool:
        """Raises Superseded if somebody has claimed it since; False if that is not known now."""
        if not self.mine:
            return True
        try:
            claims = self.numbers()
        except CheckpointError:
            return False
        require_newest(self.mine, claims)
        # Without any, this one is gone, too: they lie elsewhere for now.
        return bool(claims)

    def numbers(self) -> set[int]:
        found = (name.rpartition("/")[2] for name in self._blobs.sizes(names.OWNERS))
        return {int(name) for name in found if name.isdecimal()}

    def refuses_another(self) -> bool:
        """Whether the blobs keep what is there: asked with another content."""
        name = _name(self.mine)
        try:
            self._blobs.create(name, self._blobs.read(name, LONGEST_BYTES) + b" ")
        except AlreadyThere:
            return True
        return False

    def _whose(self, claim: int) -> str:
        content = self._blobs.read(_name(claim), LONGEST_BYTES + 1)
        return content.decode(errors="replace").rstrip(" ")


def _name(claim: int) -> str:
    return f"{names.OWNERS}/{claim:08d}"
