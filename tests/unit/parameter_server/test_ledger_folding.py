"""A shard's ledger with audit: summary: bounded, and nothing lost that a rollback may touch."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from disttrain.parameter_server import ledger
from disttrain.parameter_server.ledger import Kind, Ledger, Record
from disttrain.telemetry import folding
from disttrain.telemetry.folding import Records


def a_log(*records: Record) -> Records:
    log = np.zeros(len(records), ledger.RECORD)
    for place, record in enumerate(records):
        log[place] = (place, *record)
    return log


def pushed(version: int, sender: int, sequence: int) -> Record:
    return Record(
        Kind.PUSHED, sender=sender, incarnation=1, sequence=sequence, version=version, samples=8
    )


def committed(evaluation: int, group: int, *, attempt: int = 1, coordinator: int = 1) -> Record:
    return Record(
        Kind.COMMITTED,
        incarnation=coordinator,
        sequence=evaluation,
        version=evaluation,
        samples=100,
        lease=attempt,
        lease_offset=group,
    )


def kinds(log: Records) -> list[int]:
    return [int(kind) for kind in log["kind"]]


def test_updates_after_the_settled_version_stay_as_they_are() -> None:
    log = a_log(*(pushed(version, version % 2, (version + 1) // 2) for version in range(1, 9)))

    short = ledger.fold(log, 5)

    assert kinds(short) == [Kind.PUSHES_FOLDED] * 2 + [Kind.PUSHED] * 3
    assert short[2:].tolist() == log[5:].tolist()
    assert folding.unfold(short, ledger.PUSHES)["samples"].sum() == 64


def test_a_fence_stays_between_the_updates_of_its_sender() -> None:
    fence = Record(Kind.FENCED, sender=0, incarnation=1)
    log = a_log(pushed(1, 0, 1), pushed(2, 0, 2), fence, pushed(3, 0, 3))
    folded = Kind.PUSHES_FOLDED
    assert kinds(ledger.fold(log, 3)) == [folded, Kind.FENCED, folded]


@pytest.mark.parametrize("version", [1, 5])
def test_an_update_that_breaks_the_order_of_versions_stays_once(version: int) -> None:
    log = a_log(pushed(1, 0, 1), pushed(2, 0, 2), pushed(version, 0, 3), pushed(6, 0, 4))
    once = ledger.fold(log, 10)
    twice = ledger.fold(once, 10)
    assert int(np.sum(once["kind"] == Kind.PUSHED)) >= 1
    assert twice.tolist() == once.tolist()


def test_after_a_restore_versions_go_on_from_the_checkpoints() -> None:
    log = a_log(Record(Kind.RESTORED, version=40), pushed(41, 0, 41), pushed(42, 0, 42))
    assert kinds(ledger.fold(log, 42)) == [Kind.RESTORED, Kind.PUSHES_FOLDED]


def test_evaluations_of_each_coordinator_become_one_record() -> None:
    log = a_log(
        *(committed(evaluation, group) for evaluation in (1, 2) for group in (0, 1)),
        *(committed(3, group, coordinator=2) for group in (0, 1)),
        committed(4, 0, coordinator=2),
    )

    short = ledger.fold(log, 3)

    folded = Kind.COMMITS_FOLDED
    assert kinds(short) == [folded, folded, Kind.COMMITTED]
    assert short["first"].tolist()[:2] == [1, 3]
    assert short["chunks"].tolist()[:2] == [2, 1]
    assert ledger.fold(ledger.fold(log, 1), 3).tolist() == short.tolist()


def test_the_sum_tells_which_attempts_counted() -> None:
    one, other = (a_log(committed(1, 0, attempt=attempt)) for attempt in (1, 2))
    assert ledger.fold(one, 1)["lease"] != ledger.fold(other, 1)["lease"]


def test_an_evaluation_that_counts_a_group_twice_stays_as_it_is() -> None:
    log = a_log(committed(1, 0), committed(1, 0), committed(2, 0))
    short = ledger.fold(log, 2)
    assert kinds(short) == [Kind.COMMITTED, Kind.COMMITTED, Kind.COMMITS_FOLDED]


def test_a_ledger_does_not_grow_with_the_number_of_checkpoints(tmp_path: Path) -> None:
    """1,000 checkpoints of 40 updates by 4 senders: a record a sender, and one interval."""
    log = Ledger(path := tmp_path / "shard-0.i1.bin")
    version = 0
    for _ in range(1000):
        settled = version
        for _ in range(40):
            log.append(pushed(version + 1, version % 4, version // 4 + 1))
            version += 1
        log.fold(partial(ledger.fold, version=settled))
        assert path.stat().st_size <= (1 + 4 + 40) * ledger.RECORD.itemsize
    log.close()

    updates = folding.unfold(ledger.read(path), ledger.PUSHES)
    assert updates["samples"][updates["kind"] == Kind.PUSHED].sum() == 40_000 * 8
