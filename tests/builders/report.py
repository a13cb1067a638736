"""What every benchmark prints: one JSON object with all figures and their bars."""

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disttrain.coordinator.status import status


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure and its bound; `at_least` tells the direction."""

    name: str
    value: float
    bound: float
    at_least: bool = True

    @property
    def holds(self) -> bool:
        """Whether the figure reaches its bound; never for NaN."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def print_report(name: str, figures: dict[str, Any], bars: list[Bar]) -> None:
    """Write the JSON object to standard output; what was never reached is null in it."""
    rows = [
        {
            "name": bar.name,
            "value": bar.value,
            "bound": bar.bound,
            "direction": "at least" if bar.at_least else "at most",
            "holds": bar.holds,
        }
        for bar in bars
    ]
    report = status.finite({"benchmark": name, **figures, "bars": rows})
    json.dump(report, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def told(figure: float, digits: int) -> str:
    """A figure in a page; NaN and infinity are those of runs that never came there."""
    return f"{figure:,.{digits}f}" if math.isfinite(figure) else "not met"


def median(figures: Iterable[float]) -> float:
    """Of runs, where one that never came there, whose figure is NaN, took longer than any other."""
    return statistics.median(math.inf if math.isnan(one) else one for one in figures)


def say(what: str) -> None:
    """Tell who waits, on standard error."""
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


def measured_version() -> str:
    """The commit of this checkout, with "-dirty" after it if files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    here = Path(__file__).parent
    found = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
