from dataclasses import replace
from datetime import timedelta

import pytest

from builders.operator_jobs import KEY, NOW, pod
from disttrain.job import cluster_labels
from disttrain.job.names import Role
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import MOST_DEATHS, Inventory
from disttrain_operator.observed.records import Death, PodRecord
from disttrain_operator.reconcile import report

FIRST = Death(exit_code=1, reason="Error", message="", time=NOW)
SECOND = replace(FIRST, exit_code=7, time=NOW + timedelta(seconds=1))


def sights(*seen: PodRecord) -> PodRecord:
    """What is kept of a pod after some observations of it."""
    inventory = Inventory()
    for version, each in enumerate(seen, start=1):
        inventory.put(replace(each, version=version))
    return inventory.at(KEY).pods[seen[-1].name]


def test_a_death_is_remembered_when_another_follows() -> None:
    kept = sights(
        pod(Role.REPLICA),
        pod(Role.REPLICA, restarts=1, death=FIRST),
        pod(Role.REPLICA, restarts=1, death=SECOND, restarting=True),
        pod(Role.REPLICA, restarts=2, death=SECOND),
    )

    assert kept.deaths == (FIRST, SECOND)
    assert [each.exit_code for each in report.latest_failures((), [kept])] == [1, 7]


def a_container_that_ended(*codes: int, runs: bool = False) -> PodRecord:
    """A pod's container that ended with some codes, as the API tells of it."""
    ends = [
        {"terminated": {"exitCode": code, "finishedAt": (NOW + timedelta(number)).isoformat()}}
        for number, code in enumerate(codes)
    ]
    now, last = ({"running": {}}, ends[-1]) if runs else (ends[-1], ([{}, *ends])[-2])
    container = {"name": "disttrain", "state": now, "lastState": last}
    status = {"phase": "Running", "containerStatuses": [container]}
    labels = {cluster_labels.COMPONENT: Role.REPLICA.value, cluster_labels.INSTANCE: KEY.name}
    metadata = {"namespace": KEY.namespace, "name": "one", "uid": "uid", "labels": labels}
    found = parsing.pod({"metadata": metadata, "status": status})
    assert found is not None
    return found


@pytest.mark.parametrize("last", [0, 7])
def test_a_death_that_nobody_saw_is_told_when_the_container_ended_again(last: int) -> None:
    kept = sights(
        a_container_that_ended(3, runs=True),
        a_container_that_ended(3, 137, last),
        a_container_that_ended(3, 137, last),
    )

    assert [each.exit_code for each in kept.deaths] == [code for code in (3, 137, last) if code]
    assert kept.restarting == (last != 0)


def test_what_is_learnt_of_a_death_later_makes_it_no_other_one() -> None:
    learnt = replace(SECOND, reason="OOMKilled")

    kept = sights(
        pod(Role.REPLICA, restarts=1, death=FIRST),
        pod(Role.REPLICA, restarts=1, death=SECOND, restarting=True),
        pod(Role.REPLICA, restarts=2, death=learnt),
    )

    assert kept.deaths == (FIRST, learnt)


def test_a_pod_that_comes_in_its_place_has_died_of_nothing() -> None:
    kept = sights(
        pod(Role.REPLICA, restarts=1, death=FIRST), pod(Role.REPLICA, uid="another", death=None)
    )

    assert kept.deaths == ()


def test_deaths_do_not_pile_up() -> None:
    many = [
        pod(Role.REPLICA, restarts=number, death=replace(FIRST, time=NOW + timedelta(number)))
        for number in range(1, 50)
    ]

    assert len(sights(*many).earlier) == MOST_DEATHS


@pytest.mark.parametrize(
    ("reason", "tainted"),
    [("DeletionByTaintManager", True), ("EvictionByEvictionAPI", False)],
)
def test_a_pod_of_a_node_that_was_lost_is_told_from_one_that_was_evicted(
    reason: str, *, tainted: bool
) -> None:
    labels = {cluster_labels.COMPONENT: Role.SHARD.value}
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}

    found = parsing.pod({"metadata": {"labels": labels}, "status": {"conditions": [condition]}})

    assert found is not None
    assert (found.tainted, found.disrupted) == (tainted, True)
