"""How soon a job is looked at after something is new of its objects."""

from datetime import timedelta

from disttrain_operator.observed.news import News
from disttrain_operator.observed.records import JobRecord

_AFTER = {News.DECISIVE: timedelta(seconds=1), News.NUMBERS: timedelta(seconds=3)}
"""Events of a job's objects come in bursts; one look, and one status, answers them all."""


def after(job: JobRecord | None, news: News) -> timedelta | None:
    """The wait before a look; None for no need. `job` is None where only leftovers are."""
    if job is None or news is News.NOTHING:
        return None
    # Of a job that has ended only the numbers change, as its pods go one by one.
    return _AFTER[News.NUMBERS if job.outcome is not None else news]
