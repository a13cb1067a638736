"""Tables that the API server makes: pages put together, and rows as they change."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from builders.api_answers import CREATED, NAMESPACE, ApiInMemory
from disttrain.cli import cluster_show
from disttrain.cluster import server_tables
from disttrain.cluster.errors import Unreachable
from disttrain.cluster.interface import Object, Request
from disttrain.cluster.resources import EVENTS, JOBS, TABLE
from disttrain.cluster.server_tables import TableQuery

COLUMNS = [{"name": "Name", "priority": 0}, {"name": "Loss", "priority": 1}]


def a_row(name: str, version: str = "1") -> Object:
    metadata = {"uid": name, "resourceVersion": version, "namespace": NAMESPACE}
    return {"cells": [name, 0.5], "object": {"metadata": metadata}}


def a_change(kind: str, row: Object) -> str:
    return json.dumps({"type": kind, "object": {"rows": [row]}})


@dataclass
class TablesInMemory(ApiInMemory):
    """Gives one prepared table after the other, and one watch after the other."""

    tables: list[Object] = field(default_factory=list)
    watches: list[list[str]] = field(default_factory=list)

    def call(self, request: Request) -> Object:
        self.asked.append(request)
        return self.tables.pop(0)

    @contextmanager
    def lines(self, request: Request) -> Iterator[Iterator[str]]:
        self.asked.append(request)
        if not self.watches:
            message = "away"
            raise Unreachable(message)
        yield iter(self.watches.pop(0))


def a_table(*rows: Object, version: str = "10", more: str = "") -> Object:
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    return {"columnDefinitions": COLUMNS, "rows": list(rows), "metadata": metadata}


def test_pages_become_one_table() -> None:
    second = {**a_table(a_row("second")), "columnDefinitions": []}
    api = TablesInMemory(tables=[a_table(a_row("first"), more="token"), second])
    wanted = TableQuery(resource=JOBS, namespace=NAMESPACE, selector="team=vision", wide=True)
    table = server_tables.read(api, wanted)
    assert table.text.splitlines() == ["NAME     LOSS", "first    0.5", "second   0.5"]
    assert [each.query.get("continue") for each in api.asked] == [None, "token"]
    assert {each.accept for each in api.asked} == {TABLE}
    assert api.asked[0].query["labelSelector"] == "team=vision"


def test_changes_are_rows_and_what_a_broken_watch_missed_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_tables, "PAUSE_SECONDS", 0)
    first = a_table(a_row("one"))
    later = a_table(a_row("one", "2"), a_row("missed"), version="20")
    expired = json.dumps({"type": "ERROR", "object": {"code": 410}})
    api = TablesInMemory(
        tables=[first, later],
        watches=[
            [a_change("MODIFIED", a_row("one", "2")), expired],
            [a_change("DELETED", a_row("one", "3")), a_change("ADDED", a_row("x"))],
        ],
    )
    wanted = TableQuery(resource=JOBS, namespace=NAMESPACE)

    lines = server_tables.watch(api, wanted, server_tables.read(api, wanted))

    expected = ["NAME", "one", "one", "missed", "one", "x"]
    assert list(itertools.islice(lines, 6)) == expected
    watched = [each.query["resourceVersion"] for each in api.asked if "watch" in each.query]
    assert watched == ["10", "20"]


def test_the_servers_columns_are_shown_by_their_priority() -> None:
    row = a_row("a\nb")
    api = TablesInMemory(tables=[a_table({**row, "cells": ["a\nb", None]}) for _ in range(2)])
    narrow = server_tables.read(api, TableQuery(resource=JOBS, namespace=NAMESPACE))
    wide = server_tables.read(api, TableQuery(resource=JOBS, namespace=None, wide=True))
    assert narrow.text.splitlines() == ["NAME", "a b"]
    assert (wide.head, wide.rows[0].cells) == (
        ["NAMESPACE", "NAME", "LOSS"],
        [NAMESPACE, "a b", ""],
    )


def an_event(kind: str, name: str, **changes: object) -> Object:
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            "creationTimestamp": CREATED,
        },
        "involvedObject": {"kind": kind, "name": name},
        "type": "Normal",
        "reason": "Started",
        "message": "line\n",
        **changes,
    }


@pytest.mark.parametrize(
    ("kind", "name", "belongs"),
    [
        ("DistTrainJob", "a", True),
        ("DistTrainJob", "a-shard", False),
        ("StatefulSet", "a-shard", True),
        ("Pod", "a-shard-0", True),
        ("Pod", "a-coordinator-0-x7k2p", True),
        ("ReplicaSet", "a-replica", True),
        ("Pod", "a-replica-x7k2p", True),
        ("StatefulSet", "a-replica-11", True),
        ("Pod", "a-replica-11-0", True),
        ("Pod", "a-replica-11-shard-0", False),
        ("PersistentVolumeClaim", "a-checkpoints", True),
        ("Pod", "a-shard-shard-0", False),
        ("Pod", "a-shard-replica-x7k2p", False),
        ("Pod", "b-a-shard-0", False),
    ],
)
def test_events_of_a_job_are_those_of_its_own_objects(
    kind: str, name: str, *, belongs: bool
) -> None:
    assert cluster_show.events_of("a")(an_event(kind, name)) is belongs


def test_events_of_other_objects_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_tables, "PAUSE_SECONDS", 0)

    def row(name: str) -> Object:
        return {"cells": [name, ""], "object": an_event("Pod", name)}

    change = a_change("ADDED", row("b-shard-0")), a_change("ADDED", row("a-shard-1"))
    api = TablesInMemory(
        tables=[a_table(row("a-shard-0"), row("b-shard-0"))], watches=[list(change)]
    )
    wanted = TableQuery(resource=EVENTS, namespace=NAMESPACE, belongs=cluster_show.events_of("a"))
    lines = server_tables.watch(api, wanted, server_tables.read(api, wanted))
    assert list(itertools.islice(lines, 3)) == ["NAME", "a-shard-0", "a-shard-1"]
    assert {each.query["includeObject"] for each in api.asked} == {"Object"}


def test_events_that_a_watch_missed_come_in_their_order_below_their_heads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_tables, "PAUSE_SECONDS", 0)

    def table(*seen: str) -> Object:
        events = [an_event("Pod", f"a-shard-{minute}", lastTimestamp=minute) for minute in seen]
        rows = [{"cells": ["Normal", each["lastTimestamp"]], "object": each} for each in events]
        columns = [{"name": "Type", "priority": 0}, {"name": "Message", "priority": 0}]
        return {**a_table(*rows), "columnDefinitions": columns}

    api = TablesInMemory(tables=[table(), table("3", "1", "2")], watches=[[]])
    wanted = TableQuery(
        resource=EVENTS,
        namespace=NAMESPACE,
        belongs=cluster_show.events_of("a"),
        order=cluster_show.last_seen,
    )
    lines = list(
        itertools.islice(server_tables.watch(api, wanted, server_tables.read(api, wanted)), 4)
    )
    assert [line.split()[-1] for line in lines[1:]] == ["1", "2", "3"]
    assert {line.index(line.split()[-1]) for line in lines} == {lines[0].index("MESSAGE")}


def test_events_are_dated_by_the_field_that_their_writer_chose() -> None:
    series = {"lastObservedTime": "2026-01-01T00:04:00Z", "count": 7}
    event = an_event("Pod", "a-shard-0", series=series)
    assert cluster_show.last_seen(event) == series["lastObservedTime"]
    assert cluster_show.last_seen(an_event("Pod", "x", lastTimestamp=None)) == CREATED
