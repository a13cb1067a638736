from dataclasses import replace
from datetime import timedelta

from builders.operator_jobs import NOW, pod
from disttrain.job.names import Role
from disttrain.job.status import MOST_FAILURES
from disttrain_operator import times
from disttrain_operator.observed.records import Death
from disttrain_operator.policies import failures

DEATH = Death(exit_code=1, reason="Error", message="", time=NOW)
MANY = [
    pod(Role.REPLICA, index, death=replace(DEATH, time=NOW + timedelta(seconds=index)))
    for index in range(2 * MOST_FAILURES)
]


def test_the_latest_deaths_are_kept_the_newest_last() -> None:
    found = failures.latest((), reversed(MANY))

    assert [each.pod for each in found] == [each.name for each in MANY[-MOST_FAILURES:]]
    assert found[-1].time == times.text(NOW + timedelta(seconds=len(MANY) - 1))


def test_told_again_of_more_deaths_than_are_kept_they_stay_the_same() -> None:
    first = failures.latest((), MANY)

    assert failures.latest(first, MANY) == first


def test_deaths_of_pods_that_are_gone_are_kept() -> None:
    first = failures.latest((), MANY[:2])

    assert failures.latest(first, MANY[2:3]) == failures.latest((), MANY[:3])


def test_what_is_told_last_of_a_death_holds() -> None:
    first = failures.latest((), MANY[:1])
    again = pod(Role.REPLICA, 0, death=replace(DEATH, reason="OOMKilled"))

    (found,) = failures.latest(first, [again])

    assert found.reason == "OOMKilled"
