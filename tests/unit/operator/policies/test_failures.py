from dataclasses import replace
from datetime import timedelta

from builders.operator_jobs import NOW, pod
from disttrain.job.names import Role
from disttrain.job.status import MOST_FAILURES
from disttrain_operator import times
from disttrain_operator.observed.records import Death
from disttrain_operator.reconcile import report

DEATH = Death(exit_code=1, reason="Error", message="", time=NOW)
MANY = [
    pod(Role.REPLICA, index, death=replace(DEATH, time=NOW + timedelta(seconds=index)))
    for index in range(2 * MOST_FAILURES)
]


def test_the_latest_deaths_are_kept_the_newest_last() -> None:
    found = report.latest_failures((), reversed(MANY))

    assert [each.pod for each in found] == [each.name for each in MANY[-MOST_FAILURES:]]
    assert found[-1].time == times.text(NOW + timedelta(seconds=len(MANY) - 1))


def test_told_again_of_more_deaths_than_are_kept_they_stay_the_same() -> None:
    first = report.latest_failures((), MANY)

    assert report.latest_failures(first, MANY) == first


def test_deaths_of_pods_that_are_gone_are_kept() -> None:
    first = report.latest_failures((), MANY[:2])

    assert report.latest_failures(first, MANY[2:3]) == report.latest_failures((), MANY[:3])


def test_what_is_told_last_of_a_death_holds() -> None:
    first = report.latest_failures((), MANY[:1])
    again = pod(Role.REPLICA, 0, death=replace(DEATH, reason="OOMKilled"))

    (found,) = report.latest_failures(first, [again])

    assert found.reason == "OOMKilled"
