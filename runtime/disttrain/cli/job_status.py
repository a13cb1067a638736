"""What status.json says, as far as commands show it; other fields are left alone."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from disttrain.launcher.completion import Staleness


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True
    )


class Member(_Part):
    """One shard or replica."""

    name: str
    incarnation: int = 0
    state: str = ""
    activity: str = ""
    """What a shard does just now."""
    pid: int = 0
    metrics_address: str | None = None
    samples: int | None = None
    version: int | None = None


class BatchMethod(_Part):
    """How a batch method is doing."""

    iteration: int = 0
    gradient_norm: float | None = None
    stage: str = ""
    warning: str | None = None
    """What the manifest had better say otherwise."""

    @property
    def has_begun(self) -> bool:
        """Whether its warm start is over."""
        return self.stage != "warm_start"


class JobStatus(_Part):
    """How a job is."""

    phase: str
    reason: str | None = None
    message: str | None = None
    seconds: float = 0.0
    samples: int = 0
    steps: int = 0
    epoch: float = 0.0
    samples_per_second: float = 0.0
    loss: float | None = None
    progress: Annotated[float, Field(ge=0, le=1)] = 0.0
    remaining_seconds: float | None = None
    has_target: bool = False
    """Whether a measure may end it before its limits do."""
    latest_measures: dict[str, float | None] | None = None
    final_measures: dict[str, float | None] | None = None
    final_loss: float | None = None
    """Of the model that was exported."""
    staleness: Staleness = Staleness()
    sandblaster: BatchMethod | None = None
    """None for other strategies."""
    restarts: dict[str, int] = {}
    checkpoint: int | None = None
    checkpoint_failures: int = 0
    checkpoints_damaged: int = 0
    warm_start: bool = False
    updates_lost: int = 0
    updates_lost_is_exact: bool = True
    """Else at least so many."""
    measure_warning: str | None = None
    """That a measure is no number."""
    checkpoint_warning: str | None = None
    """That what was trained lately is not saved."""
    journal_warning: str | None = None
    """That nothing can be decided, so that training halts."""
    object_warning: str | None = None
    """What the object of a job on a cluster says of these."""
    limit: str = ""
    """One sentence: what limits the speed."""
    metrics_address: str | None = None
    """Of the coordinator."""
    members: list[Member] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the manifest had better say otherwise, and what seems wrong with the task."""
        of_method = None if self.sandblaster is None else self.sandblaster.warning
        found = (
            of_method,
            self.journal_warning,
            self.checkpoint_warning,
            self.measure_warning,
            self.object_warning,
        )
        return tuple(text for text in found if text)

    @property
    def mean_rate(self) -> float | None:
        """Samples per second of the whole run; None if it is not known how long it took."""
        return self.samples / self.seconds if self.seconds > 0 else None

    @property
    def is_batch(self) -> bool:
        return self.sandblaster is not None and self.sandblaster.has_begun


def read_status(file: Path) -> JobStatus | None:
    """The status in a file; None before the coordinator has written one that can be read."""
    found = read_written(file)
    return None if found is None else found[1]


def read_written(file: Path) -> tuple[bytes, JobStatus] | None:
    """The same, and what stands in the file: of one reading, as it is written again and again."""
    try:
        written = file.read_bytes()
        return written, JobStatus.model_validate_json(written)
    except (OSError, ValidationError):
        return None
