"""The coordinator is told to end while the job is to go on: by SIGTERM, on a cluster."""

from collections.abc import Callable

from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal.journals import DecisionJournal
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_PATIENCE_SECONDS = 60.0
"""For a last checkpoint: half of the time that a pod gets to end."""


class Leaving:
    """A last checkpoint, and then the end of this process; its members are told nothing.

    They go on with what they have, and with the next life, which has the journal.
    """

    def __init__(self, machine: Coordinator, journal: DecisionJournal) -> None:
        self._machine = machine
        self._journal = journal
        self._asked = False
        self._since: float | None = None

    def ask(self) -> None:
        """From a signal handler."""
        self._asked = True

    def is_over(self, now: float, settle: Callable[[Turn], None]) -> bool:
        """Whether this process may end now; begins the last checkpoint when it was asked to."""
        if not self._asked:
            return False
        if self._since is None:
            LOG.info("leaves after a checkpoint", reason="SIGTERM")
            self._since = now
            if not self._journal.is_behind:
                settle(self._machine.save_now(now))
        is_busy = self._machine.state.checkpoint is not None or self._journal.is_behind
        return not is_busy or now - self._since > _PATIENCE_SECONDS
