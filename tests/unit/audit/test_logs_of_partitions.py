"""A replica of several partitions, each with a log of what its own shards have answered."""

from pathlib import Path

import pytest

from disttrain.audit import reading
from disttrain.audit.reading import Logs
from disttrain.parameter_server.client import Push, PushResult, Version
from disttrain.replica.ledger import Gradient, Kind, Ledger, LedgerOfAnswers, path_of
from disttrain.replica.work import WorkItem
from disttrain.transport.memory import OrdinaryMemory

ITEM = WorkItem(lease=1, epoch=0, portion=0, first=0, end_offset=3, indices=[0, 1, 2])
FETCHED = Version(incarnation=1, count=4)


def take_a_step(log: Ledger, shard: int) -> None:
    log.lease_begun(ITEM)
    log.step(1, ITEM)
    log.fetched(1, (FETCHED,), (shard,))
    log.mark(Kind.ADOPTED, 1)
    log.computed(Gradient(1, 3, 0.5, 0.25, is_finite=False), ITEM.position)
    gradient = OrdinaryMemory().allocate("gradient", 4)
    push = Push(sequence=1, gradient=gradient, samples=3, lease=1, lease_offset=3)
    log.acknowledged(push, PushResult(shard=shard, version=FETCHED, staleness=0))
    log.left()
    log.close()


def logs_of_two_partitions(folder: Path) -> Logs:
    for incarnation in (1, 2):
        take_a_step(Ledger(path_of(folder, 0, incarnation), records_steps=True), shard=0)
        of_answers = LedgerOfAnswers(path_of(folder, 0, incarnation, 1), records_steps=True)
        take_a_step(of_answers, shard=1)
    return reading.logs(folder)


def test_logs_of_all_partitions_are_one_incarnation(tmp_path: Path) -> None:
    found = logs_of_two_partitions(tmp_path)

    assert not found.unreadable
    assert list(found.replicas) == [0]
    assert [(each.process, each.incarnation) for each in found.replicas[0]] == [
        ("replica-0", 1),
        ("replica-0", 2),
    ]
    for each in found.replicas[0]:
        assert each.of(Kind.ACKNOWLEDGED)["shard"].tolist() == [0, 1]
        assert each.of(Kind.FETCHED)["shard"].tolist() == [0, 1]
        assert each.shards == (frozenset({0}), frozenset({1}))


@pytest.mark.parametrize(
    "kind", [Kind.LEASE_BEGUN, Kind.STEP, Kind.ADOPTED, Kind.NOT_FINITE, Kind.LEFT]
)
def test_what_all_partitions_do_is_counted_once(tmp_path: Path, kind: Kind) -> None:
    for each in logs_of_two_partitions(tmp_path).replicas[0]:
        assert len(each.of(kind)) == 1


def test_a_log_of_a_partition_that_ends_in_half_a_record_is_said(tmp_path: Path) -> None:
    logs_of_two_partitions(tmp_path)
    with path_of(tmp_path, 0, 1, 1).open("ab") as file:
        file.write(b"half a record")

    first, second = reading.logs(tmp_path).replicas[0]
    assert first.ends_in_half
    assert not second.ends_in_half
