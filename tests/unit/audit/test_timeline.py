from collections.abc import Sequence
from xml.etree import ElementTree

import numpy as np
import pytest

from disttrain.audit.evidence import Evidence, Incarnation
from disttrain.audit.timeline import Computed, timeline
from disttrain.cli import timeline_picture
from disttrain.cli.timeline import lines
from disttrain.parameter_server.ledger import RECORD, Kind

SECOND = 1_000_000_000
BEGAN = 7_000_000_000_000

Push = tuple[int, int, int, float]
"""Replica, version afterwards, version that was read, seconds."""


def drawn(found: Sequence[Computed], title: str) -> ElementTree.Element:
    return ElementTree.fromstring(timeline_picture.draw(found, title))  # noqa: S314 - it is our own.


def evidence(pushes: list[Push], *, incarnation: int = 1, read_incarnation: int = 1) -> Evidence:
    records = np.zeros(len(pushes) + 1, RECORD)
    records["kind"] = [Kind.ADMITTED] + [Kind.PUSHED] * len(pushes)
    records["time_ns"] = [BEGAN, *(BEGAN + int(at * SECOND) for *_, at in pushes)]
    for place, (replica, version, read, _) in enumerate(pushes, start=1):
        records[place]["sender"], records[place]["version"] = replica, version
        records[place]["read_version"], records[place]["staleness"] = read, version - read - 1
        records[place]["read_incarnation"] = read_incarnation
    log = Incarnation(process="shard-0", index=0, incarnation=incarnation, records=records)
    return Evidence(record=False, shards={0: (log,)}, replicas={})


THREE: list[Push] = [(0, 1, 0, 1.0), (1, 2, 0, 1.5), (0, 3, 1, 2.0)]


def test_a_gradient_lasts_from_the_version_that_it_is_of_to_its_own() -> None:
    found = timeline(evidence(THREE), 0)

    assert found == [
        Computed(replica=0, version=1, staleness=0, read_seconds=0.0, applied_seconds=1.0),
        Computed(replica=1, version=2, staleness=1, read_seconds=0.0, applied_seconds=1.5),
        Computed(replica=0, version=3, staleness=1, read_seconds=1.0, applied_seconds=2.0),
    ]


def test_versions_that_the_log_does_not_tell_of_are_left_out() -> None:
    assert [each.version for each in timeline(evidence([(0, 9, 2, 1.0), (0, 10, 9, 2.0)]), 0)] == [
        10
    ]
    assert timeline(evidence(THREE, incarnation=2), 0) == []
    assert timeline(evidence([]), 0) == []


def test_a_log_that_begins_late_does_not_date_the_version_before_it() -> None:
    """Its earlier updates are folded: nobody knows when version 8 came to be."""
    found = timeline(evidence([(0, 9, 8, 5.0), (0, 10, 9, 6.0)]), 0)
    assert [each.version for each in found] == [10]


def test_what_a_shard_was_restored_with_was_there_when_its_log_began() -> None:
    log = evidence([(0, 0, 0, 0.0), (0, 9, 8, 5.0)])
    records = log.shards[0][0].records
    records[1]["kind"], records[1]["version"] = Kind.RESTORED, 8
    assert [each.read_seconds for each in timeline(log, 0)] == [0.0]


def test_the_table_has_a_row_for_each_replica() -> None:
    head, _, *rows = lines(timeline(evidence(THREE), 0))

    assert head == "updates 1 to 3, 1 s"
    assert [row.split() for row in rows] == [
        ["0", "2", "0.50", "1", "1000.0"],
        ["1", "1", "1.00", "1", "-"],
    ]


@pytest.mark.parametrize("pushes", [THREE, THREE[:1], [(0, 1, 0, 0.0)]])
def test_the_picture_has_a_bar_and_a_mark_for_each_gradient(pushes: list[Push]) -> None:
    found = timeline(evidence(pushes), 0)
    picture = drawn(found, "<a> & b")

    kinds = [element.tag.rpartition("}")[2] for element in picture.iter()]
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert kinds.count("rect") == 1 + len(pushes)
    assert len([each for each in picture.iter() if each.get("stroke-width") == "2"]) == len(pushes)
    assert texts[0] == "<a> & b"
    assert {f"replica {replica}" for replica, *_ in pushes} < set(texts)


def test_gradients_that_are_under_way_at_once_lie_below_each_other() -> None:
    found = timeline(evidence([(0, 1, 0, 1.0), (0, 2, 0, 2.0), (0, 3, 1, 3.0)]), 0)
    picture = drawn(found, "one replica")

    first, third, second = [
        (float(each.get("x", "0")), float(each.get("y", "0")))
        for each in picture.iter()
        if each.get("rx") == "3"
    ]
    assert first < third
    assert first[1] == third[1] < second[1]
