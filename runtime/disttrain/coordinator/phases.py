"""Where a job and the incarnations of its processes stand: words that load nothing else."""

from enum import StrEnum

INCARNATIONS_PER_RUN = 1000
"""More incarnations than any process can have had between the ledger's snapshot and that run's
end."""


class Phase(StrEnum):
    """Where the job stands. The first seven come in this order.

    Training for a target goes back from Evaluating to Running when the model misses it.
    """

    WAITING = "Waiting"
    """For members, the layout, initial values."""
    RUNNING = "Running"
    DRAINING = "Draining"
    """No more work; replicas push what they have."""
    CHECKPOINTING = "Checkpointing"
    """The last checkpoint."""
    EXPORTING = "Exporting"
    EVALUATING = "Evaluating"
    """Of exactly the exported file."""
    COMPLETE = "Complete"
    STOPPED = "Stopped"
    """By a person; it can be resumed."""
    FAILED = "Failed"

    @property
    def ended(self) -> bool:
        return self in {Phase.COMPLETE, Phase.STOPPED, Phase.FAILED}


class StopReason(StrEnum):
    """Which rule ended the job, as `summary.json` says it."""

    EPOCHS = "Epochs"
    STEPS = "Steps"
    SAMPLES = "Samples"
    SECONDS = "Seconds"
    ITERATIONS = "Iterations"
    TARGET_METRIC = "TargetMetric"
    PATIENCE = "Patience"
    """Enough evaluations found nothing better."""
    CONVERGED = "Converged"
    """The batch method is done."""
    STOPPED = "Stopped"
    """A person stopped it."""


class IncarnationState(StrEnum):
    """Whether an incarnation of a process is part of the job."""

    LIVE = "live"
    DEAD = "dead"
    """Died, timed out or was replaced by a newer incarnation; fenced."""
    LEFT = "left"
    """Ended by its own will."""
