"""When a checkpoint or an evaluation is due. Pure."""

from disttrain.job.evaluation import Evaluation

_RETRY_SECONDS = 10.0
"""A checkpoint that failed is tried again after at most this long: a full disk may be emptied."""


def checkpoint_due(*, since_last: float | None, every: float, last_failed: bool) -> bool:
    """The first one right after the initial values; then every so often."""
    if since_last is None:
        return True
    return since_last >= (min(every, _RETRY_SECONDS) if last_failed else every)


def evaluation_due(
    rules: Evaluation, *, epochs_done: int, evaluated_epoch: int, since_last: float
) -> bool:
    """After every so many epochs, and every so many seconds."""
    if rules.every_epochs is not None and epochs_done // rules.every_epochs > (
        evaluated_epoch // rules.every_epochs
    ):
        return True
    return rules.every_seconds is not None and since_last >= rules.every_seconds
