"""The strategies of a job one after another: what the status asks of them, and which is at work."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from disttrain.coordinator.journal.state import State
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status.watch import Watch


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage(ABC):
    """One strategy of a job, as the status sees it. Holds no state of the job."""

    settings: Settings

    @abstractmethod
    def has_begun(self, state: State) -> bool:
        """Whether the job has come to it, or past it."""

    def is_warming_up(self, state: State) -> bool:
        """Whether it begins with a part of the replicas, and has not processed enough samples."""
        del state
        return False

    def iterations(self, state: State) -> int:
        """Steps of a method that counts them; 0 of others."""
        del state
        return 0

    def loss(self, state: State, watch: Watch) -> float | None:
        """What is made smaller: else what the replicas' batches had lately. None: not known yet."""
        del state
        return watch.loss

    def status(self, state: State) -> dict[str, Any]:
        """Fields of the job's status that are this strategy's own."""
        del state
        return {}


def at_work(stages: Sequence[Stage], state: State) -> int:
    """The number of the stage that the job has come to."""
    begun = (number for number, stage in enumerate(stages) if stage.has_begun(state))
    return max(begun, default=0)
