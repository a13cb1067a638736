"""Where a job and its processes stand, and why a job ended: words that load nothing else."""

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


class FailureReason(StrEnum):
    """Why a job failed, as `summary.json` says it."""

    TASK_ERROR = "TaskError"
    """The user's code raised, or its model, data or loss cannot be trained."""
    DIVERGED = "Diverged"
    """More non-finite gradients than `maxNonFiniteGradients`."""
    TOO_MANY_RESTARTS = "TooManyRestarts"
    WRONG_MODEL = "WrongModel"
    """A replica's model differs from the others' or the checkpoint's."""
    WRONG_DATA = "WrongData"
    """A replica sees another number of samples than the job has, more than there can be an account
    of, or a number that a schedule does not fit to."""
    EMPTY_DATA = "EmptyData"
    BATCH_TOO_LARGE = "BatchTooLarge"
    EXPORT_FAILED = "ExportFailed"
    CHECKPOINT_DAMAGED = "CheckpointDamaged"
    """No checkpoint that a shard could go on from is whole."""
    CHECKPOINT_FAILED = "CheckpointFailed"
    """The last checkpoint, which becomes the result, could not be written."""
    EVALUATION_FAILED = "EvaluationFailed"
    LAUNCH_FAILED = "LaunchFailed"
    SHARD_LOST = "ShardLost"
    """A shard died and `durability` is none."""


def reason_of(error_kind: str) -> FailureReason:
    """Why a job fails by a member's error that no restart heals; `error_kind`: its class's name."""
    is_damage = error_kind == "Corrupt"
    return FailureReason.CHECKPOINT_DAMAGED if is_damage else FailureReason.TASK_ERROR
