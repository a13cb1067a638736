"""Whether somebody runs a job: what its folder says, before a loop of one's own waits for it."""

from disttrain.launch import outcome
from disttrain.launch.run_folder import RunFolder
from disttrain.replica.errors import JobEnded


def require(folder: RunFolder) -> None:
    """Raise JobEnded for a run that has ended, or whose launcher is no more."""
    if (ended := outcome.read_summary(folder.summary)) is not None:
        how = f"{ended.result} ({ended.reason})" if ended.reason else ended.result
        message = f"the run in {folder.path} has ended: {how}; join one that runs"
        raise JobEnded(message)
    if not folder.is_held():
        resume = f"disttrain resume {folder.path}"
        message = f"nobody runs the job in {folder.path}; go on with: {resume}"
        raise JobEnded(message)
