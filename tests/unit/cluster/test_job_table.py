"""The table of jobs: pages put together, and rows as they change."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from builders.api_answers import NAMESPACE, ApiInMemory
from disttrain.cluster import job_table
from disttrain.cluster.errors import Unreachable
from disttrain.cluster.interface import Object, Request
from disttrain.cluster.resources import TABLE

COLUMNS = [{"name": "Name", "priority": 0}, {"name": "Loss", "priority": 1}]


def a_row(name: str, version: str = "1") -> Object:
    metadata = {"uid": name, "resourceVersion": version, "namespace": NAMESPACE}
    return {"cells": [name, 0.5], "object": {"metadata": metadata}}


def an_event(kind: str, row: Object) -> str:
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
    table = job_table.read(api, NAMESPACE, "team=vision", wide=True)
    assert table.text().splitlines() == ["NAME     LOSS", "first    0.5", "second   0.5"]
    assert [each.query.get("continue") for each in api.asked] == [None, "token"]
    assert {each.accept for each in api.asked} == {TABLE}
    assert api.asked[0].query["labelSelector"] == "team=vision"


def test_changes_are_rows_and_what_a_broken_watch_missed_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_table, "PAUSE_SECONDS", 0)
    first = a_table(a_row("one"))
    later = a_table(a_row("one", "2"), a_row("missed"), version="20")
    expired = json.dumps({"type": "ERROR", "object": {"code": 410}})
    api = TablesInMemory(
        tables=[first, later],
        watches=[
            [an_event("MODIFIED", a_row("one", "2")), expired],
            [an_event("ADDED", a_row("x"))],
        ],
    )
    table = job_table.read(api, NAMESPACE, "", wide=False)

    lines = job_table.watch(api, NAMESPACE, "", table)

    assert list(itertools.islice(lines, 5)) == ["NAME", "one", "one", "missed", "x"]
    watched = [each.query["resourceVersion"] for each in api.asked if "watch" in each.query]
    assert watched == ["10", "20"]
