"""When a job that has ended is deleted."""

from datetime import datetime, timedelta

from disttrain_operator.observed.records import Outcome


def due_at(outcome: Outcome | None, seconds: int | None) -> datetime | None:
    """The instant; None for a job that goes on or is kept."""
    if outcome is None or seconds is None:
        return None
    return outcome.time + timedelta(seconds=seconds)
