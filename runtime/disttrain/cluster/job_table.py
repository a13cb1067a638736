"""The table of jobs, as the API server makes it, and the rows of it that change."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from disttrain.cluster import jobs, resources, tables
from disttrain.cluster.errors import ClusterError, Unreachable
from disttrain.cluster.interface import Api, Object
from disttrain.cluster.resources import JOBS, TABLE

PAUSE_SECONDS: Final = 1.0
"""Before a watch that ended is opened again."""


@dataclass(frozen=True, slots=True)
class JobTable:
    """What was listed: the answer of the API server, and how it is shown."""

    answer: Object
    wide: bool
    namespaces: bool

    @property
    def rows(self) -> list[list[str]]:
        return self._all()[1:]

    @property
    def widths(self) -> list[int]:
        return [max(map(len, column)) for column in zip(*self._all(), strict=True)]

    def text(self) -> str:
        return tables.text(self._all())

    def lines(self, widths: Sequence[int]) -> list[str]:
        return [tables.line(row, widths) for row in self.rows]

    def _all(self) -> list[list[str]]:
        return tables.of_answer(self.answer, wide=self.wide, namespaces=self.namespaces)


def read(api: Api, namespace: str | None, selector: str, *, wide: bool) -> JobTable:
    """List the jobs of one namespace, or of all. Raises ClusterError, Unreachable."""
    request = resources.listing(JOBS, namespace, labelSelector=selector)
    whole: Object = {}
    for answer in jobs.pages(api, replace(request, accept=TABLE)):
        rows = [*(whole.get("rows") or []), *(answer.get("rows") or [])]
        # Only the first page says the columns.
        whole = {**answer, **whole, "metadata": answer.get("metadata"), "rows": rows}
    return JobTable(whole, wide, namespace is None)


def watch(api: Api, namespace: str | None, selector: str, first: JobTable) -> Iterator[str]:
    """The lines of a table, and then a line for each change, for ever."""
    shown, table = _versions(first), first
    widths = table.widths
    yield tables.line(_head(table), widths)
    yield from table.lines(widths)
    while True:
        yield from _changes(api, namespace, selector, table, shown)
        time.sleep(PAUSE_SECONDS)
        try:
            table = read(api, namespace, selector, wide=first.wide)
        except Unreachable:
            continue
        # A watch that ended may have missed something: show what is new since then.
        versions = _versions(table)
        news = [uid for uid, version in versions.items() if shown.get(uid) != version]
        yield from _selected(table, news, widths)
        shown = versions


def _changes(
    api: Api, namespace: str | None, selector: str, table: JobTable, shown: dict[str, str]
) -> Iterator[str]:
    version = str((table.answer.get("metadata") or {}).get("resourceVersion") or "")
    request = resources.watch(JOBS, namespace, labelSelector=selector, resourceVersion=version)
    widths = table.widths
    try:
        with api.lines(replace(request, accept=TABLE)) as lines:
            for line in lines:
                event = json.loads(line)
                if event["type"] not in {"ADDED", "MODIFIED", "DELETED"}:
                    return
                part = replace(table, answer={**table.answer, "rows": event["object"]["rows"]})
                shown |= _versions(part)
                yield from part.lines(widths)
    except (Unreachable, ClusterError):
        return


def _selected(table: JobTable, uids: Sequence[str], widths: Sequence[int]) -> list[str]:
    rows = [row for row in table.answer.get("rows") or [] if _metadata(row)["uid"] in uids]
    return replace(table, answer={**table.answer, "rows": rows}).lines(widths)


def _head(table: JobTable) -> list[str]:
    return tables.of_answer(table.answer, wide=table.wide, namespaces=table.namespaces)[0]


def _versions(table: JobTable) -> dict[str, str]:
    found = (_metadata(row) for row in table.answer.get("rows") or [])
    return {each["uid"]: each["resourceVersion"] for each in found}


def _metadata(row: Object) -> Object:
    metadata: Object = row["object"]["metadata"]
    return metadata
