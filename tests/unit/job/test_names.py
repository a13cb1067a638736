"""Names of processes, both ways."""

import pytest

from disttrain.job.names import COORDINATOR, Role, replica_name, role_and_index, shard_name


def test_names_count_from_zero() -> None:
    names = [COORDINATOR, shard_name(0), replica_name(11)]
    assert names == ["coordinator", "shard-0", "replica-11"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (COORDINATOR, (Role.COORDINATOR, 0)),
        (shard_name(3), (Role.SHARD, 3)),
        (replica_name(12), (Role.REPLICA, 12)),
    ],
)
def test_a_name_says_role_and_index(name: str, expected: tuple[Role, int]) -> None:
    assert role_and_index(name) == expected


@pytest.mark.parametrize(
    "name", ["", "replica", "replica-", "replica--1", "replica-01", "coordinator-0", "x-1"]
)
def test_other_texts_are_no_names(name: str) -> None:
    with pytest.raises(ValueError, match="no process is called"):
        role_and_index(name)


def test_a_negative_index_is_refused() -> None:
    with pytest.raises(ValueError, match="counts from 0, got -1"):
        replica_name(-1)
