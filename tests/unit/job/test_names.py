"""Names of processes, both ways."""

import pytest

from disttrain.job.names import COORDINATOR, Role, member_name, parse, replica_name, shard_name


def test_names_count_from_zero() -> None:
    names = [COORDINATOR, shard_name(0), replica_name(11)]
    assert names == ["coordinator", "shard-0", "replica-11"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (COORDINATOR, (Role.COORDINATOR, 0, None)),
        (shard_name(3), (Role.SHARD, 3, None)),
        (replica_name(12), (Role.REPLICA, 12, None)),
        (member_name(12, 0, 2), (Role.REPLICA, 12, 0)),
        (member_name(12, 1, 2), (Role.REPLICA, 12, 1)),
    ],
)
def test_a_name_says_role_index_and_partition(
    name: str, expected: tuple[Role, int, int | None]
) -> None:
    found = parse(name)
    assert (found.role, found.index, found.partition) == expected
    assert str(found) == name


def test_the_only_process_of_a_replica_has_its_name() -> None:
    assert member_name(3, 0, 1) == replica_name(3) == parse(member_name(3, 1, 2)).group


@pytest.mark.parametrize(
    "name",
    [
        "",
        "replica",
        "replica-",
        "replica--1",
        "replica-01",
        "replica-0-01",
        "replica-0-",
        "replica-0-1-2",
        "shard-0-1",
        "coordinator-0",
        "x-1",
    ],
)
def test_other_texts_are_no_names(name: str) -> None:
    with pytest.raises(ValueError, match="no process is called"):
        parse(name)


def test_a_negative_index_is_refused() -> None:
    with pytest.raises(ValueError, match="counts from 0, got -1"):
        replica_name(-1)
