from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from disttrain.audit import exactly_once
from disttrain.audit.evidence import Evidence, Incarnation
from disttrain.audit.finding import Verdict
from disttrain.parameter_server import ledger
from disttrain.parameter_server.ledger import RECORD, Kind

Commits = dict[int, list[tuple[int, int]]]
"""Groups and attempts by evaluation."""


def an_incarnation(
    shard: int, commits: Commits, incarnation: int = 1, samples: int = 240
) -> Incarnation:
    rows = [
        (number, group, attempt) for number, found in commits.items() for group, attempt in found
    ]
    records = np.zeros(len(rows), RECORD)
    records["kind"] = Kind.COMMITTED
    records["samples"] = samples
    for place, column in enumerate(("sequence", "lease_offset", "lease")):
        records[column] = [row[place] for row in rows]
    return Incarnation(
        process=f"shard-{shard}", index=shard, incarnation=incarnation, records=records
    )


def evidence(*incarnations: Incarnation) -> Evidence:
    shards = {
        index: tuple(incarnation for incarnation in incarnations if incarnation.index == index)
        for index in {incarnation.index for incarnation in incarnations}
    }
    return Evidence(record=False, shards=shards, replicas={}, train_samples=240)


WHOLE: Commits = {1: [(0, 5), (1, 7)], 2: [(0, 9), (1, 8)]}


def test_one_attempt_of_each_group_on_every_shard_is_what_was_promised() -> None:
    found = exactly_once.check(evidence(an_incarnation(0, WHOLE), an_incarnation(1, WHOLE)))

    assert found.verdict is Verdict.HELD
    assert found.evidence == "2 evaluations of 2 groups on 2 shards"


@pytest.mark.parametrize(
    ("commits", "sentence"),
    [
        ({1: [(0, 5), (0, 6), (1, 7)], 2: WHOLE[2]}, "added up a group twice"),
        ({1: [(0, 5), (1, 6)], 2: WHOLE[2]}, "added up other attempts"),
        ({1: [(0, 5)], 2: WHOLE[2]}, "left out groups"),
    ],
)
def test_a_shard_that_counted_something_else_is_named(commits: Commits, sentence: str) -> None:
    found = exactly_once.check(evidence(an_incarnation(0, WHOLE), an_incarnation(1, commits)))

    assert found.verdict is Verdict.VIOLATED
    assert any(sentence in violation for violation in found.violations)
    assert all("in evaluation 1" in violation for violation in found.violations)


def test_samples_that_are_not_those_of_the_data_are_seen() -> None:
    found = exactly_once.check(evidence(an_incarnation(0, WHOLE, samples=239)))

    assert found.verdict is Verdict.VIOLATED
    assert "239 of 240 samples" in found.violations[0]


def test_an_incarnation_that_was_killed_while_it_wrote_may_lack_records() -> None:
    cut_short = an_incarnation(1, {1: WHOLE[1], 2: WHOLE[2][:1]})

    assert exactly_once.check(evidence(an_incarnation(0, WHOLE), cut_short)).verdict is Verdict.HELD


def test_a_resumed_run_may_use_numbers_again() -> None:
    later = an_incarnation(0, {2: [(0, 30), (1, 31)]})
    resumed = replace(later, incarnation=later.incarnation + 1_000_000)

    assert exactly_once.check(evidence(an_incarnation(0, WHOLE), resumed)).verdict is Verdict.HELD


SMALLER: Commits = {1: [(4, 5), (2, 7)], 2: [(2, 9), (6, 8)]}


def test_a_batch_that_is_smaller_than_the_data_has_groups_of_its_own() -> None:
    incarnations = [an_incarnation(shard, SMALLER, samples=60) for shard in range(2)]
    smaller = replace(evidence(*incarnations), batch_is_everything=False)

    assert exactly_once.check(smaller).verdict is Verdict.HELD
    assert exactly_once.check(evidence(*incarnations)).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("samples", "sentence"), [((60, 61), "counted 61 samples"), ((241, 241), "of 240 that there")]
)
def test_samples_that_a_batch_cannot_have_are_seen(samples: tuple[int, int], sentence: str) -> None:
    incarnations = [an_incarnation(shard, SMALLER, samples=samples[shard]) for shard in range(2)]
    found = exactly_once.check(replace(evidence(*incarnations), batch_is_everything=False))

    assert any(sentence in violation for violation in found.violations), found.violations


class Counted(np.ndarray[Any, Any]):
    """Counts the elements that are read of it."""

    read = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        Counted.read += np.size(found)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        Counted.read += max(np.size(each) for each in inputs)
        plain = [each.view(np.ndarray) if isinstance(each, Counted) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **named)


def elements_read(evaluations: int) -> int:
    incarnation = an_incarnation(0, dict.fromkeys(range(evaluations), WHOLE[1]))
    Counted.read = 0
    counted = replace(incarnation, records=incarnation.records.view(Counted))
    assert exactly_once.check(evidence(counted)).verdict is Verdict.HELD
    return Counted.read


def test_ten_times_the_evaluations_are_ten_times_the_work() -> None:
    few = elements_read(20)
    assert 0 < elements_read(200) <= 11 * few


def folded(incarnation: Incarnation) -> Incarnation:
    return replace(incarnation, records=ledger.fold(incarnation.records, 0))


def test_folded_evaluations_are_compared_as_a_whole() -> None:
    found = exactly_once.check(
        evidence(folded(an_incarnation(0, WHOLE)), folded(an_incarnation(1, WHOLE)))
    )

    assert found.verdict is Verdict.HELD
    assert "2 more are folded, compared as a whole" in found.evidence


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            an_incarnation(1, {1: WHOLE[1], 2: [(0, 9), (1, 9)]}),
            "added up other attempts than shard-0",
        ),
        (an_incarnation(1, WHOLE, samples=200), "counted 200 of 240 samples in one of them"),
    ],
)
def test_a_shard_that_counted_something_else_is_named_when_it_is_folded(
    other: Incarnation, sentence: str
) -> None:
    found = exactly_once.check(evidence(folded(an_incarnation(0, WHOLE)), folded(other)))

    assert found.verdict is Verdict.VIOLATED
    assert any(sentence in violation for violation in found.violations)
