"""Whether a run is complete, so that a resume has nothing to do."""

from math import nan
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from disttrain.coordinator.decisions import stop_rules
from disttrain.coordinator.decisions.stop_rules import Reached
from disttrain.job.names import Role
from disttrain.job.spec import Spec
from disttrain.job.status import SandblasterStatus
from disttrain.job.status_section import Number, StatusSection
from disttrain.launch import config as launch_config
from disttrain.launch.errors import InvalidLaunchConfig
from disttrain.launch.run_folder import RunFolder


class Staleness(StatusSection):
    """Updates between a gradient's parameters and the gradient; None before the first push."""

    p50: int | None = None
    p99: int | None = None


class Completed(StatusSection):
    """How far a run came that is complete: the figures of its summary."""

    phase: Literal["Complete"]
    reason: str = ""
    epochs: int = 0
    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    final_measures: dict[str, Number] | None = None
    staleness: Staleness = Staleness()
    sandblaster: SandblasterStatus | None = None

    @property
    def reached(self) -> Reached:
        measured = (self.final_measures or {}).items()
        return Reached(
            epochs=self.epochs,
            steps=self.steps,
            samples=self.samples,
            seconds=self.seconds,
            measures={name: nan if value is None else value for name, value in measured},
            iterations=self.iterations or 0,
        )

    @property
    def iterations(self) -> int | None:
        """Of a batch method; None with another strategy."""
        return None if self.sandblaster is None else self.sandblaster.iteration


def is_final(completed: Completed, then: Spec | None, now: Spec) -> bool:
    """Whether a manifest asks for nothing that a complete run has not reached. Pure.

    `then` is what the run followed; None if that is unknown. By the same manifest it is complete
    however it ended: a batch method that converged has met no limit.
    """
    return now == then or stop_rules.met(now.stop, completed.reached) is not None


def read(summary: Path) -> Completed | None:
    """The figures of a run that is complete; None of one that is not, or has no summary."""
    try:
        return Completed.model_validate_json(summary.read_bytes())
    except (OSError, ValidationError):
        return None


def followed(folder: RunFolder) -> Spec | None:
    """What the latest run in a folder followed, whatever its manifest says since; None: unknown."""
    try:
        return launch_config.read(folder.config(Role.COORDINATOR)).job.spec
    except InvalidLaunchConfig:
        return None
