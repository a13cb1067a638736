from datetime import timedelta

import pytest

from builders.operator_jobs import NOW, job
from disttrain_operator.observed.inventory import News
from disttrain_operator.observed.records import EndPhase, JobRecord, Outcome

ENDED = Outcome(phase=EndPhase.COMPLETE, reason="EpochsDone", message="", time=NOW)


@pytest.mark.parametrize(
    ("record", "news", "seconds"),
    [
        (job(), News.DECISIVE, 1),
        (job(), News.NUMBERS, 3),
        (job(), News.NOTHING, None),
        (job({"outcome": ENDED}), News.DECISIVE, 3),
        (None, News.DECISIVE, None),
    ],
)
def test_what_decides_is_looked_at_first(
    record: JobRecord | None, news: News, seconds: float | None
) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)

    assert news.debounce(record) == expected
