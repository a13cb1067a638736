from datetime import timedelta

import pytest

from builders.operator_jobs import NOW, job
from disttrain_operator.observed.inventory import Change
from disttrain_operator.observed.records import EndPhase, JobRecord, Outcome

ENDED = Outcome(phase=EndPhase.COMPLETE, reason="EpochsDone", message="", time=NOW)


@pytest.mark.parametrize(
    ("record", "change", "seconds"),
    [
        (job(), Change.DECISIVE, 1),
        (job(), Change.NUMBERS, 3),
        (job(), Change.NOTHING, None),
        (job({"outcome": ENDED}), Change.DECISIVE, 3),
        (None, Change.DECISIVE, None),
    ],
)
def test_what_decides_is_looked_at_first(
    record: JobRecord | None, change: Change, seconds: float | None
) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)

    assert change.debounce(record) == expected
