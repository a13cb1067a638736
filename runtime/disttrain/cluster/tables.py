"""Tables as kubectl prints them. Pure."""

from collections.abc import Sequence
from typing import Final

from disttrain.cluster.interface import Object
from disttrain.job import terminal_text

_GAP: Final = "   "
NOTHING: Final = "<none>"


def text(rows: Sequence[Sequence[str]]) -> str:
    """Columns under each other; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(line(row, widths) for row in rows)


def line(row: Sequence[str], widths: Sequence[int]) -> str:
    """One row; the last column needs no width."""
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return _GAP.join(cells).rstrip()


def printable(cell: object) -> str:
    """A value from elsewhere as one line that cannot steer a terminal."""
    return terminal_text.one_line(NOTHING if cell is None or cell == "" else str(cell))


def of_answer(table: Object, *, wide: bool, namespaces: bool) -> list[list[str]]:
    """Rows, the head first, of a Table that the API server made (meta.k8s.io/v1)."""
    columns = table.get("columnDefinitions") or []
    shown = [index for index, each in enumerate(columns) if wide or not each.get("priority")]
    head = [str(columns[index]["name"]).upper() for index in shown]
    rows = [_row(each, shown, namespaces=namespaces) for each in table.get("rows") or []]
    return [["NAMESPACE", *head] if namespaces else head, *rows]


def _row(row: Object, shown: Sequence[int], *, namespaces: bool) -> list[str]:
    found = (row["cells"][index] for index in shown)
    # As kubectl: what the object does not say yet is left empty.
    cells = ["" if cell is None else printable(cell) for cell in found]
    if not namespaces:
        return cells
    metadata = (row.get("object") or {}).get("metadata") or {}
    return [printable(metadata.get("namespace")), *cells]
