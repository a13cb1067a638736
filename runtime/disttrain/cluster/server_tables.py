"""Tables of objects as the API server makes them, and their rows that change."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from disttrain.cluster import jobs, kubectl_text, resources
from disttrain.cluster.errors import ClusterError, Unreachable
from disttrain.cluster.interface import Api, Object, Request
from disttrain.cluster.resources import TABLE, Resource

PAUSE_SECONDS: Final = 2.0
"""Before a watch that ended, or that is not allowed, is opened again."""

_LEAST_WIDTHS: Final = {
    "NAMESPACE": 16,
    "NAME": 24,
    "PHASE": 9,
    "STRATEGY": 11,
    "MEASURE": 16,
    "LAST SEEN": 9,
    "TYPE": 7,
    "REASON": 18,
    "OBJECT": 40,
}
"""Of columns that are watched, in characters: what is usual there, as the widest may be to come."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableQuery:
    """Which objects, and which of their columns."""

    resource: Resource
    namespace: str | None
    """None: all namespaces."""
    selector: str = ""
    belongs: Callable[[Object], bool] | None = None
    """Whether a whole object that was selected is one of them."""
    order: Callable[[Object], str] | None = None
    """By what of a whole object they are sorted; None: as the API server lists them."""
    wide: bool = False

    def table(self, request: Request) -> Request:
        """The same request for the table; the API server leaves out objects unless it is asked."""
        is_whole = self.belongs is not None or self.order is not None
        whole = {"includeObject": "Object"} if is_whole else {}
        return replace(request, query={**request.query, **whole}, accept=TABLE)


@dataclass(frozen=True, slots=True)
class Row:
    """One object."""

    cells: list[str]
    found: Object
    """As much of it as was asked for."""

    @property
    def uid(self) -> str:
        return str(self.found["metadata"]["uid"])

    @property
    def version(self) -> str:
        return str(self.found["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True)
class Table:
    """What was listed."""

    head: list[str]
    rows: list[Row]
    columns: Sequence[int]
    """Numbers of the cells that are shown."""
    version: str
    """From which a watch goes on."""

    @property
    def text(self) -> str:
        return kubectl_text.table([self.head, *(row.cells for row in self.rows)])

    @property
    def versions(self) -> dict[str, str]:
        return {row.uid: row.version for row in self.rows}


def read(api: Api, query: TableQuery) -> Table:
    """List the objects. Raises ClusterError, Unreachable."""
    listing = resources.listing(query.resource, query.namespace, labelSelector=query.selector)
    answers = list(jobs.pages(api, query.table(listing)))
    # Only the first page says the columns.
    columns = answers[0].get("columnDefinitions") or []
    shown = [index for index, each in enumerate(columns) if query.wide or not each.get("priority")]
    head = [str(columns[index]["name"]).upper() for index in shown]
    rows = [row for answer in answers for row in _rows(answer, shown, query)]
    if (order := query.order) is not None:
        rows.sort(key=lambda row: order(row.found))
    version = str((answers[-1].get("metadata") or {}).get("resourceVersion") or "")
    namespaces = ["NAMESPACE"] if query.namespace is None else []
    return Table([*namespaces, *head], rows, shown, version)


def watch(api: Api, query: TableQuery, first: Table) -> Iterator[str]:
    """The lines of a table, and then a line for each object that is new or changes, for ever."""
    cells = [first.head, *(row.cells for row in first.rows)]
    # Rows that come later stand below these heads, too.
    least = (_LEAST_WIDTHS.get(name, 0) for name in first.head)
    found = (max(map(len, column)) for column in zip(*cells, strict=True))
    widths = [max(pair) for pair in zip(least, found, strict=True)]
    yield from (kubectl_text.line(each, widths) for each in cells)
    table, shown = first, first.versions
    while True:
        for row in _changes(api, query, table):
            shown[row.uid] = row.version
            yield kubectl_text.line(row.cells, widths)
        time.sleep(PAUSE_SECONDS)
        try:
            table = read(api, query)
        except Unreachable:
            continue
        # A watch that ended may have missed something: show what is new since then.
        news = [row for row in table.rows if shown.get(row.uid) != row.version]
        yield from (kubectl_text.line(row.cells, widths) for row in news)
        shown = table.versions


def _changes(api: Api, query: TableQuery, table: Table) -> Iterator[Row]:
    request = resources.watch(
        query.resource,
        query.namespace,
        labelSelector=query.selector,
        resourceVersion=table.version,
    )
    try:
        with api.lines(query.table(request)) as lines:
            for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                # An event goes when it is old, which is no news; of a job that goes it is.
                if event["type"] != "DELETED" or query.belongs is None:
                    yield from _rows(event["object"], table.columns, query)
    except (Unreachable, ClusterError):
        return


def _rows(answer: Object, columns: Sequence[int], query: TableQuery) -> Iterator[Row]:
    for each in answer.get("rows") or ():
        found = each["object"]
        if query.belongs is not None and not query.belongs(found):
            continue
        # As kubectl: what the object does not say yet is left empty.
        chosen = (each["cells"][index] for index in columns)
        cells = ["" if cell is None else kubectl_text.printable(cell) for cell in chosen]
        if query.namespace is None:
            cells = [kubectl_text.printable(found["metadata"].get("namespace")), *cells]
        yield Row(cells, found)
