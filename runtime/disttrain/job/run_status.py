"""What displays and the launcher take from the coordinator's status, or from a job's object."""

from collections.abc import Mapping
from itertools import islice
from math import floor
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError, model_validator

from disttrain.job.status import MOST_MEASURES, SandblasterStatus, TrainingStatus
from disttrain.job.status_section import LONGEST_TEXT, Number, StatusSection

_WARM_START: Final = "warm_start"
"""Stage of a batch method before it begins."""


class Member(StatusSection):
    """One shard or replica."""

    name: str
    incarnation: int = 0
    state: str = ""
    reason: str = ""
    """Why it is so, if it is dead."""
    activity: str = ""
    """What a shard does just now."""
    place: str = ""
    """The only one where it can be; empty: not known."""
    pid: int = 0
    metrics_address: str | None = None
    samples: int | None = None
    version: int | None = None
    staleness_p50: Number = None
    """Of a replica's pushes, or of those that a shard has applied."""
    staleness_p99: Number = None

    @property
    def is_dead(self) -> bool:
        """Whether the coordinator has given it up."""
        return self.state == "dead"


class RunStatus(StatusSection):
    """How a job is."""

    phase: str
    reason: str | None = None
    message: str | None = None
    seconds: float = 0.0
    training: TrainingStatus = TrainingStatus()
    sandblaster: SandblasterStatus | None = None
    """None for other strategies."""
    has_target: bool = False
    """Whether a measure may end it before its limits do."""
    final_measures: dict[str, Number] | None = None
    final_loss: Number = None
    """Of the model that was exported."""
    checkpoint: int | None = None
    """Number of the latest that was saved."""
    checkpoint_failures: int = 0
    checkpoints_damaged: int = 0
    warm_start: bool = False
    updates_lost: int = 0
    updates_lost_is_exact: bool = True
    """Else at least so many."""
    journal_warning: str | None = None
    """That nothing can be decided, so that training halts."""
    limit: str = ""
    """One sentence: what limits the speed."""
    metrics_address: str | None = None
    """Of the coordinator."""
    members: tuple[Member, ...] = ()
    removed: tuple[str, ...] = ()
    """Places of joiners that may never be members again."""

    @model_validator(mode="before")
    @classmethod
    def _of_before(cls, found: Any) -> Any:
        """Older files have the figures of training beside the others."""
        if not isinstance(found, Mapping) or "training" in found or "progress" not in found:
            return found
        try:
            return {**found, "training": _training_of_before(found)}
        except (ArithmeticError, AttributeError, TypeError) as error:
            # Of these pydantic makes no ValidationError.
            raise ValueError(str(error)) from error

    @property
    def joined(self) -> frozenset[tuple[str, int]]:
        """Names and process ids of the members, dead or not."""
        return frozenset((member.name, member.pid) for member in self.members)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the manifest had better say otherwise, and what seems wrong with the task."""
        of_method = None if self.sandblaster is None else self.sandblaster.warning
        found = (of_method, self.journal_warning, self.training.warning)
        return tuple(text for text in found if text)

    @property
    def mean_rate(self) -> float | None:
        """Samples per second of the whole run; None if it is not known how long it took."""
        return (self.training.samples or 0) / self.seconds if self.seconds > 0 else None

    @property
    def is_batch(self) -> bool:
        return self.sandblaster is not None and self.sandblaster.stage != _WARM_START


def _training_of_before(found: Mapping[str, Any]) -> dict[str, Any]:
    measures = found.get("latestMeasures") or {}
    staleness = found.get("staleness") or {}
    warnings = (found.get("checkpointWarning"), found.get("measureWarning"))
    return {
        **found,
        "metrics": dict(islice(measures.items(), MOST_MEASURES)),
        "progressPercent": floor(100 * found["progress"]),
        "estimatedRemainingSeconds": found.get("remainingSeconds"),
        "stalenessP50": staleness.get("p50"),
        "stalenessP99": staleness.get("p99"),
        "warning": "; ".join(text for text in warnings if text)[:LONGEST_TEXT] or None,
    }


def read(file: Path) -> RunStatus | None:
    """The status in a file; None before the coordinator has written one that can be read."""
    found = read_written(file)
    return None if found is None else found[1]


def read_written(file: Path) -> tuple[bytes, RunStatus] | None:
    """The same, and what stands in the file: of one reading, as it is written again and again."""
    try:
        written = file.read_bytes()
        return written, RunStatus.model_validate_json(written)
    except (OSError, ValidationError):
        return None
