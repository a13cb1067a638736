"""What a dashboard consists of, in our words; `grafana` turns it into Grafana's."""

from dataclasses import dataclass
from enum import StrEnum

from disttrain_monitoring.query import Query


class Kind(StrEnum):
    """How a panel draws its series."""

    LINES = "lines"
    STACK = "stack"
    """Areas on top of each other, for parts of a whole."""
    NUMBER = "number"
    """The latest value, large."""
    NAME = "name"
    """The name of the only series, large."""
    HEAT_MAP = "heat map"
    """Of a histogram's buckets."""


class Worse(StrEnum):
    """Which side of the limits is bad."""

    ABOVE = "above"
    BELOW = "below"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Where a value becomes yellow, then red."""

    warning: float
    bad: float
    worse: Worse = Worse.ABOVE


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One picture with the question that it answers."""

    title: str
    means: str
    """What it shows, what a bad value means and what to do then."""
    queries: tuple[Query, ...]
    unit: str = "short"
    """A unit of Grafana's."""
    kind: Kind = Kind.LINES
    limits: Limits | None = None
    width: int = 8
    """Of 24."""
    repeat: str = ""
    """Draw it once for each value of this variable."""
    leads_to: str = ""
    """Where a click on a series goes: an address with Grafana's variables."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below one title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """A choice at the top of a dashboard: the values of a label."""

    name: str
    series: str
    label: str
    is_chosen: bool = True
    """False: nobody sees it, and all values are taken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Board:
    """A dashboard."""

    identity: str
    """Its uid: the end of its address."""
    title: str
    means: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of them, top to bottom."""
        return tuple(panel for row in self.rows for panel in row.panels)
