"""What the operator knows of a job besides what it sees: answers to what it did. Not kept."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from disttrain_operator.observed.records import ChildRecord
from disttrain_operator.policies.missing_pods import Lack
from disttrain_operator.policies.problem import Problem


@dataclass(slots=True)
class Knowledge:
    """About one job; a new one begins with nothing."""

    uid: str
    generation: int = 0
    """The generation that `refused` and `checked` are about."""
    refused: Problem | None = None
    """What the API server said against the templates."""
    checked: bool = False
    """Whether the API server would take the templates."""
    made: bool = False
    """Whether all children were there once."""
    keys_checked: datetime | None = None
    """When it was last seen that the keys are there."""
    answered: dict[str, datetime] = field(default_factory=dict)
    """When nodes, on which a pod did not end in its time, were found to answer."""
    told: set[str] = field(default_factory=set)
    """Names of the Events that tell of a status which is not yet written."""
    lacks: dict[str, Lack] = field(default_factory=dict)
    """Workloads that have too few pods, by their uids."""
    in_the_way: tuple[ChildRecord, ...] = ()
    """Objects of others, found where a child was to be made."""
    error: Problem | None = None
    """What fails repeatedly."""

    reported: tuple[dict[str, Any], dict[str, Any]] | None = None
    """The status that was written last, and what the API server made of it, if not the same."""
    reported_at: datetime | None = None
    """When that was."""

    def has_reported(self, status: dict[str, Any], seen: dict[str, Any]) -> bool:
        """Whether writing this status would change nothing of the one that was seen."""
        # The API server may leave out what it does not know: that must not be written for ever.
        return seen == status or self.reported == (status, seen)

    def begin(self, generation: int) -> None:
        if self.generation != generation:
            self.generation, self.refused, self.checked = generation, None, False
