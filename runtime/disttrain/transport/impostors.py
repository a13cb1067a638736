"""Counts and logs those whose certificate does not speak for whom they said they are."""

from disttrain.telemetry import logs
from disttrain.transport.errors import Refusal
from disttrain.transport.interface import Listener

LOG = logs.get(__name__)

_MOST_TOLD = 64
"""Sentences in the log; further ones are only counted."""


class Impostors:
    """Belongs to the listener's thread."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._told: set[str] = set()

    def note(self, why: str) -> None:
        """`why` names both; each sentence is logged once."""
        self._listener.refused[Refusal.IMPOSTOR] += 1
        if why not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(why)
            LOG.warning("request refused", reason=why)
