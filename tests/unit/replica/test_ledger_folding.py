"""A replica's ledger with audit: summary."""

from pathlib import Path

import numpy as np
import pytest

from disttrain.parameter_server.client import Push, PushResult, Version
from disttrain.replica import ledger
from disttrain.replica.ledger import Kind, Ledger, Record
from disttrain.telemetry import folding
from disttrain.telemetry.folding import Records
from disttrain.transport.memory import OrdinaryMemory


def a_log(*records: Record) -> Records:
    log = np.zeros(len(records), ledger.RECORD)
    for place, record in enumerate(records):
        log[place] = (place, *record)
    return log


def answer(shard: int, number: int, version: int, incarnation: int = 1) -> Record:
    return Record(
        Kind.ACKNOWLEDGED,
        shard=shard,
        shard_incarnation=incarnation,
        number=number,
        version=version,
    )


def a_push(number: int) -> Push:
    gradient = OrdinaryMemory().allocate("gradient", 4)
    return Push(sequence=number, gradient=gradient, samples=8, lease=1, lease_offset=8)


def kinds(log: Records) -> list[int]:
    return [int(kind) for kind in log["kind"]]


def test_answers_of_each_shard_become_one_record() -> None:
    log = a_log(*(answer(shard, number, number) for number in range(1, 5) for shard in (0, 1)))
    short = ledger.fold(log)
    assert kinds(short) == [Kind.ANSWERS_FOLDED] * 2
    assert folding.unfold(short, ledger.ANSWERS)["number"].tolist() == [1, 2, 3, 4] * 2


@pytest.mark.parametrize("late", [answer(0, 3, 1), answer(0, 3, 9, incarnation=1)])
def test_an_answer_that_goes_back_stays_as_it_is(late: Record) -> None:
    before = answer(0, 2, 5, incarnation=1 if late.version == 1 else 2)
    short = ledger.fold(a_log(before, late, answer(0, 4, 10, incarnation=2)))
    assert kinds(short) == [Kind.ANSWERS_FOLDED, Kind.ACKNOWLEDGED, Kind.ANSWERS_FOLDED]


def test_places_of_leases_go_and_what_was_refused_stays() -> None:
    log = a_log(Record(Kind.LEASE_BEGUN, lease=1), Record(Kind.NOT_FINITE), Record(Kind.REFUSED))
    assert kinds(ledger.fold(log)) == [Kind.NOT_FINITE, Kind.REFUSED]


def test_a_ledger_does_not_grow_with_the_number_of_pushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "FOLD_RECORDS", 100)
    log = Ledger(path := tmp_path / "replica-0.i1.bin", folds=True)
    for number in range(1, 5001):
        for shard in (0, 1):
            result = PushResult(shard=shard, version=Version(1, number), staleness=0)
            log.acknowledged(a_push(number), result)
        assert path.stat().st_size <= (1 + 2 + 100) * ledger.RECORD.itemsize
    log.close()

    answers = folding.unfold(ledger.read(path), ledger.ANSWERS)
    assert int(np.sum(answers["kind"] == Kind.ACKNOWLEDGED)) == 10_000
