from datetime import timedelta
from typing import Any

from builders.operator_jobs import KEY, NOW, job
from disttrain_operator.reconcile import reconciler
from disttrain_operator.telemetry.metrics import REGISTRY

FAILURE = {"role": "shard", "pod": "digits-shard-0", "reason": "OOMKilled", "time": "t"}


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"disttrain_operator_{name}", labels) or 0.0


def counted(before: dict[str, Any], after: dict[str, Any]) -> tuple[float, float, float]:
    """How many starts, their seconds, and restarts a status adds."""

    def now() -> tuple[float, float, float]:
        return (
            value("starting_seconds_count"),
            value("starting_seconds_sum"),
            value("restarts_total", role="shard", reason="OOMKilled"),
        )

    begun = now()
    reconciler.measure(job({"status": before}), after, NOW + timedelta(seconds=7))
    first, second, third = (end - begin for begin, end in zip(begun, now(), strict=True))
    return first, second, third


def test_a_start_is_counted_as_training_begins() -> None:
    assert counted({"phase": "Pending"}, {"phase": "Running"}) == (1, 7, 0)
    assert counted({}, {"phase": "Running"}) == (1, 7, 0)
    assert counted({"phase": "Running"}, {"phase": "Running"}) == (0, 0, 0)


def test_a_death_is_counted_when_it_is_told_first() -> None:
    assert counted({}, {"failures": [FAILURE]}) == (0, 0, 1)
    later = {**FAILURE, "time": "later"}
    assert counted({"failures": [FAILURE]}, {"failures": [FAILURE, later]}) == (0, 0, 1)
    assert counted({"failures": "spoiled"}, {"failures": [FAILURE]}) == (0, 0, 1)


def ends(before: dict[str, Any], after: dict[str, Any]) -> tuple[float, float]:
    """How many jobs are accepted and ended by a status."""

    def now() -> tuple[float, float]:
        return (
            value("jobs_accepted_total", job_namespace=KEY.namespace),
            value("jobs_ended_total", job_namespace=KEY.namespace, phase="Complete"),
        )

    begun = now()
    reconciler.measure(job({"status": before}), after, NOW + timedelta(seconds=90))
    return now()[0] - begun[0], now()[1] - begun[1]


def test_a_job_is_counted_once_as_it_comes_and_once_as_it_ends() -> None:
    assert ends({}, {"phase": "Pending"}) == (1, 0)
    assert ends({"phase": "Pending"}, {"phase": "Running"}) == (0, 0)
    before = value("job_seconds_sum", phase="Complete")
    assert ends({"phase": "Running"}, {"phase": "Complete"}) == (0, 1)
    assert value("job_seconds_sum", phase="Complete") == before + 90
    assert ends({"phase": "Complete"}, {"phase": "Complete"}) == (0, 0)
    assert ends({}, {"phase": "Complete"}) == (1, 1), "of one that ended before it was seen"
