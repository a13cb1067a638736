"""Whether somebody runs a job: what its folder says, before a loop of one's own waits for it."""

from pydantic import BaseModel, ValidationError

from disttrain.launch.run_folder import RunFolder
from disttrain.replica.errors import JobEnded


class _Summary(BaseModel):
    phase: str
    reason: str | None = None


def require(folder: RunFolder) -> None:
    """Raise JobEnded for a run that has ended, or whose launcher is no more."""
    if (why := _why_not(folder)) is not None:
        raise JobEnded(why)


def _why_not(folder: RunFolder) -> str | None:
    try:
        ended = _Summary.model_validate_json(folder.summary.read_bytes())
    except (OSError, ValidationError):
        if folder.is_held():
            return None
        return f"nobody runs the job in {folder.path}; go on with: disttrain resume {folder.path}"
    how = f"{ended.phase} ({ended.reason})" if ended.reason else ended.phase
    return f"the run in {folder.path} has ended: {how}; join one that runs"
