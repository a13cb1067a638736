"""The strategies of a job one after another: what the status asks of them, and which is at work."""

from collections.abc import Sequence
from typing import Any, Protocol

from disttrain.coordinator.journal.state import State
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status.watch import Watch


class Stage(Protocol):
    """One strategy of a job, as the status sees it. Holds no state of the job."""

    @property
    def settings(self) -> Settings: ...

    def has_begun(self, state: State) -> bool:
        """Whether the job has come to it, or past it."""

    def iterations(self, state: State) -> int:
        """Steps of a method that counts them; 0 of others."""

    def is_warming_up(self, state: State) -> bool:
        """Whether it begins with a part of the replicas, and has not processed enough samples."""

    def loss(self, state: State, watch: Watch) -> float | None:
        """What is made smaller; None before it is known."""

    def status(self, state: State) -> dict[str, Any]:
        """Fields of the job's status that are this strategy's own."""


def at_work(stages: Sequence[Stage], state: State) -> int:
    """The number of the stage that the job has come to."""
    begun = (number for number, stage in enumerate(stages) if stage.has_begun(state))
    return max(begun, default=0)
