"""Tables as kubectl prints them. Pure."""

from collections.abc import Sequence
from typing import Final

from disttrain.job import terminal_text

_GAP: Final = "   "
NOTHING: Final = "<none>"


def text(rows: Sequence[Sequence[str]]) -> str:
    """Columns under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(line(row, widths) for row in rows)


def line(row: Sequence[str], widths: Sequence[int]) -> str:
    """One row; the last column needs no width."""
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return _GAP.join(cells).rstrip()


def printable(cell: object) -> str:
    """A value from elsewhere as one line that cannot steer a terminal."""
    return terminal_text.one_line(NOTHING if cell is None or cell == "" else str(cell))
