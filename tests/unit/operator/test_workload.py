"""Whose pods an object makes, by its kind and its name, and the other way round."""

import pytest

from disttrain.job.names import Role
from disttrain_operator import workload
from disttrain_operator.kinds import Kind
from disttrain_operator.workload import Workload


@pytest.mark.parametrize(
    ("keeper", "kind", "name"),
    [
        (Workload(Role.COORDINATOR), Kind.Job, "digits-coordinator"),
        (Workload(Role.SHARD), Kind.StatefulSet, "digits-shard"),
        (Workload(Role.REPLICA), Kind.ReplicaSet, "digits-replica"),
        (Workload(Role.REPLICA, 0), Kind.StatefulSet, "digits-replica-0"),
        (Workload(Role.REPLICA, 4095), Kind.StatefulSet, "digits-replica-4095"),
    ],
)
def test_a_workload_has_a_kind_and_a_name_and_is_found_by_them(
    keeper: Workload, kind: Kind, name: str
) -> None:
    assert (keeper.kind, keeper.name("digits")) == (kind, name)
    assert workload.of(kind, "digits", name) == keeper


@pytest.mark.parametrize("name", ["digits-replica-01", "digits-replica-x", "digits-replica-"])
def test_only_the_index_of_a_replica_makes_a_set_that_of_a_replica(name: str) -> None:
    assert workload.of(Kind.StatefulSet, "digits", name) == Workload(Role.SHARD)


def test_replicas_of_an_older_operator_are_told_by_their_kind() -> None:
    assert workload.of(Kind.ReplicaSet, "digits", "digits-replica-5d9c") == Workload(Role.REPLICA)


@pytest.mark.parametrize("kind", [Kind.Service, Kind.Pod, Kind.NetworkPolicy])
def test_what_makes_no_pods_is_no_workload(kind: Kind) -> None:
    assert workload.of(kind, "digits", "digits-replica-0") is None
