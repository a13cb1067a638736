"""Runs of records become one, and can be told apart again."""

import numpy as np
import pytest

from disttrain.telemetry import folding
from disttrain.telemetry.folding import Mask, Records, Shape

ONE, FOLDED, OTHER = 1, 2, 3
RECORD = np.dtype(
    [
        ("time_ns", "<u8"),
        ("kind", "u1"),
        ("owner", "<u4"),
        ("life", "<u4"),
        ("number", "<u8"),
        ("samples", "<u8"),
        ("first", "<u8"),
        ("began", "<u8"),
    ]
)
SHAPE = Shape(
    one=ONE, folded=FOLDED, number="number", owner="owner", incarnation="life", began="began"
)


def a_log(*rows: tuple[int, int, int, int]) -> Records:
    """Kind, owner, incarnation, number; one a nanosecond, with 8 samples each."""
    log = np.zeros(len(rows), RECORD)
    for place, (kind, owner, incarnation, number) in enumerate(rows):
        log[place] = (place + 1, kind, owner, incarnation, number, 8, 0, 0)
    return log


def everything(log: Records) -> Mask:
    return np.ones(len(log), np.bool_)


def folded(log: Records) -> Records:
    return folding.fold(log, everything(log), SHAPE)


def spans(log: Records) -> list[tuple[int, ...]]:
    names = ("kind", "owner", "life", "first", "number", "samples")
    return [tuple(int(record[name]) for name in names) for record in log]


def test_each_owners_numbers_become_one_record() -> None:
    log = folded(a_log((ONE, 7, 1, 1), (ONE, 8, 1, 1), (ONE, 7, 1, 2), (ONE, 8, 1, 2)))

    assert spans(log) == [(FOLDED, 7, 1, 1, 2, 16), (FOLDED, 8, 1, 1, 2, 16)]
    assert log["began"].tolist() == [1, 2]
    assert log["time_ns"].tolist() == [3, 4]


@pytest.mark.parametrize("between", [(ONE, 7, 1, 1), (ONE, 7, 1, 4), (OTHER, 7, 1, 0)])
def test_whatever_breaks_the_order_of_an_owner_ends_a_run(
    between: tuple[int, int, int, int],
) -> None:
    log = a_log((ONE, 7, 1, 1), (ONE, 7, 1, 2), between, (ONE, 7, 1, 3))

    numbers = folding.unfold(folded(log), SHAPE)["number"].tolist()

    assert numbers == [1, 2, between[3], 3]
    assert len(folded(log)) == 3


def test_incarnations_of_an_owner_are_not_mixed() -> None:
    log = a_log((ONE, 7, 1, 1), (ONE, 7, 2, 2))
    assert spans(folded(log)) == [(FOLDED, 7, 1, 1, 1, 8), (FOLDED, 7, 2, 2, 2, 8)]


def test_what_may_not_be_folded_stays_as_it_is() -> None:
    log = a_log((ONE, 7, 1, 1), (ONE, 7, 1, 2), (ONE, 7, 1, 3))
    may = np.array([True, False, True])
    assert folding.fold(log, may, SHAPE)["kind"].tolist() == [FOLDED, ONE, FOLDED]
    assert folding.fold(log, may, SHAPE)[1] == log[1]


@pytest.mark.parametrize("seed", range(20))
def test_folding_little_by_little_is_folding_at_once(seed: int) -> None:
    random = np.random.default_rng(seed)
    numbers = dict.fromkeys(range(3), 0)
    rows = []
    for _ in range(60):
        owner = int(random.integers(3))
        numbers[owner] += int(random.random() < 0.95) + int(random.random() < 0.1)
        rows.append((OTHER if random.random() < 0.05 else ONE, owner, 1, numbers[owner]))
    log = a_log(*rows)

    cut = int(random.integers(60))
    twice = folded(np.concatenate([folded(log[:cut]), log[cut:]]))

    assert twice.tolist() == folded(log).tolist()
    again = folding.unfold(twice, SHAPE)
    for owner in numbers:
        mine, before = again[again["owner"] == owner], log[log["owner"] == owner]
        assert mine[["kind", "number"]].tolist() == before[["kind", "number"]].tolist()
        assert mine["samples"].sum() == before["samples"].sum()


def test_an_empty_log_stays_empty() -> None:
    assert len(folding.unfold(folded(a_log()), SHAPE)) == 0
