"""How a run ended, from the coordinator's summary or, without one, from what the launcher saw.

Also the small JSON file in which a process says why it must not be started again.
"""

import contextlib
import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from disttrain.launch import atomic_file
from disttrain.launch.exit_code import ExitCode


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An error that a restart cannot heal."""

    kind: str
    """Name of the error's class."""
    message: str
    """For the user: what was wrong and the remedy; may have several lines."""


_FAILURE = TypeAdapter(Failure)

LONGEST_MESSAGE = 32_000
"""Characters; the coordinator takes 65,536 in a text."""


def write_failure(path: Path, error: BaseException) -> None:
    """Write the error into `path`, atomically."""
    message = str(error)[:LONGEST_MESSAGE] or type(error).__name__
    failure = Failure(kind=type(error).__name__, message=message)
    atomic_file.replace(path, _FAILURE.dump_json(failure, indent=1))


def read_failure(path: Path) -> Failure | None:
    """The failure in `path`; None without such a file or when it is not whole."""
    try:
        return _FAILURE.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


class Result(StrEnum):
    """The words of a summary's `phase`."""

    COMPLETE = "Complete"
    FAILED = "Failed"
    STOPPED = "Stopped"
    """Interrupted; can be resumed."""


EXIT_CODES = {
    Result.COMPLETE: ExitCode.COMPLETE,
    Result.FAILED: ExitCode.FAILED,
    Result.STOPPED: ExitCode.INTERRUPTED,
}

RESULTS = {code.value: result for result, code in EXIT_CODES.items()}
"""What the coordinator's exit codes say of the job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended."""

    result: Result
    reason: str = ""
    message: str = ""
    """For the user; may have several lines."""

    @property
    def exit_code(self) -> ExitCode:
        return EXIT_CODES[self.result]


class _Summary(BaseModel):
    """The fields of summary.json that decide."""

    model_config = ConfigDict(extra="ignore")

    phase: Result
    reason: str | None = None
    message: str | None = None


def read_summary(path: Path) -> Outcome | None:
    """What summary.json says; None without one."""
    try:
        summary = _Summary.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return Outcome(result=summary.phase, reason=summary.reason or "", message=summary.message or "")


def write_summary(path: Path, outcome: Outcome) -> None:
    """Write the summary of a job whose coordinator could not, unless the disk is full."""
    summary = {"phase": outcome.result, "reason": outcome.reason, "message": outcome.message}
    with contextlib.suppress(OSError):
        atomic_file.replace(path, json.dumps(summary, indent=2).encode())
