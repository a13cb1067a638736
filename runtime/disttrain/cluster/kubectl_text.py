"""Tables, instants and durations as kubectl writes them. Pure but for `now`.

Not rich's tables: those fold what is wider than a terminal, and a watch goes on below its table.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from disttrain.job import terminal_text

_GAP: Final = "   "
NOTHING: Final = "<none>"


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(line(row, widths) for row in rows)


def line(row: Sequence[str], widths: Sequence[int]) -> str:
    """One row; the last column needs no width."""
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return _GAP.join(cells).rstrip()


def printable(cell: object) -> str:
    """A value from elsewhere as one line that cannot steer a terminal."""
    return terminal_text.one_line(NOTHING if cell is None or cell == "" else str(cell))


def duration(seconds: float) -> str:
    """As `42s`, `5m3s`, `3h20m` or `12d`: the two parts that matter."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        return _joined(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _joined(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    return _joined(days, "d", hours % 24, "h") if days < 8 else f"{days}d"


def age(instant: str | None, now: datetime) -> str:
    """How long ago an instant was; `<unknown>` without one."""
    return "<unknown>" if not instant else duration(seconds_since(instant, now))


def seconds_since(instant: str, now: datetime) -> float:
    """`instant`: RFC 3339, with or without a fraction."""
    return (now - datetime.fromisoformat(instant)).total_seconds()


def now() -> datetime:
    """The present instant; the only clock of this package."""
    return datetime.now(UTC)


def _joined(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}" + (f"{small}{small_unit}" if small else "")
