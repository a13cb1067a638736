"""How often failed processes are started again, and what ends the job."""

from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from disttrain.job.section import NotNegative, Positive, Section, WholeNumber


class MaxRestarts(Section):
    """Restarts of a role in the whole job; the next failure after them fails the job."""

    replica: WholeNumber = 10
    """Restarts of all replicas together."""

    shard: WholeNumber = 10
    """Restarts of all shards together."""

    coordinator: WholeNumber = 10
    """Restarts of the coordinator."""


class RestartBackoff(Section):
    """Waiting before a restart; it doubles with each failure of the same process."""

    initial_seconds: NotNegative = 0.5
    """Seconds before the first restart."""

    max_seconds: Positive = 30.0
    """The longest wait, in seconds; at least initialSeconds."""

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.initial_seconds <= self.max_seconds:
            return self
        raise PydanticCustomError(
            "backoff_shrinks",
            "maxSeconds must be at least initialSeconds ({initial}), got {maximum}",
            {"initial": self.initial_seconds, "maximum": self.max_seconds},
        )


class FailurePolicy(Section):
    """What is survived, and how often."""

    max_restarts: MaxRestarts = MaxRestarts()
    """Restart budgets per role."""

    restart_backoff: RestartBackoff = RestartBackoff()
    """Waiting before a restart."""

    max_non_finite_gradients: WholeNumber = 10
    """Gradients with NaN or infinity that are refused before the job fails as Diverged."""
