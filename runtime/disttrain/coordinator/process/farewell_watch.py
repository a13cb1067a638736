"""Looks for farewells now and then, without the coordinator's loop waiting for it."""

from collections.abc import Mapping
from concurrent.futures import Future, wait
from functools import partial
from types import MappingProxyType
from typing import Final

from disttrain.coordinator.protocol.farewells import Farewells
from disttrain.coordinator.protocol.messages import Leave
from disttrain.launch.background import Background

_NONE: Final[Mapping[str, Leave]] = MappingProxyType({})
_LAST_SECONDS = 1.0
"""For what is to be forgotten at the end; one that stays is heard again, which changes nothing."""


class FarewellWatch:
    """Belongs to the coordinator's thread; the store is asked in another one.

    A store that is away takes tens of seconds to say so, and heartbeats must be heard meanwhile.
    """

    def __init__(self, farewells: Farewells) -> None:
        self._farewells = farewells
        self._background = Background("farewells")
        self._look: Future[dict[str, Leave]] | None = None
        self._forgetting: set[Future[None]] = set()
        self._next_look = 0.0

    def found(self, now: float) -> Mapping[str, Leave]:
        """Those of the last look, by name, once; `forget` each when it is journaled."""
        if self._look is not None and self._look.done():
            found, self._look = self._look.result(), None
            self._next_look = now + self._farewells.pause_seconds
            return found
        if self._look is None and now >= self._next_look:
            self._look = self._background.submit(self._farewells.read)
        return _NONE

    def forget(self, name: str) -> None:
        """Have it deleted before the next look."""
        future = self._background.submit(partial(self._farewells.forget, name))
        self._forgetting.add(future)
        future.add_done_callback(self._forgetting.discard)

    def finish(self) -> None:
        """Wait a moment for what is to be forgotten."""
        wait(list(self._forgetting), _LAST_SECONDS)
