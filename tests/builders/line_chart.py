"""Lines over two axes as an SVG picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

Points = Sequence[tuple[float, float]]

_INCHES = (8.6, 4.4)
_PLACES = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class LineChart:
    """What the axes are. Each name is one line; of several runs it is their median.

    Where a name has several runs, an area shows from the lowest to the highest of them.
    """

    across: str
    upwards: str
    is_logarithmic: bool = False
    """Upwards."""
    across_is_logarithmic: bool = False

    def draw(self, path: Path, runs: Mapping[str, Sequence[Points]]) -> None:
        """Write the picture; a name without any point is left out.

        Text stays text, and the same figures give the same file.
        """
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.add_subplot()
        for name, several in runs.items():
            _draw_median(axes, name, [run for run in several if run])
        axes.set(xlabel=self.across, ylabel=self.upwards)
        axes.set(**{"yscale": "log"} if self.is_logarithmic else {"ylim": (0, None)})
        if self.across_is_logarithmic:
            axes.set(xscale="log")
        else:
            axes.set(xlim=(0, None))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside right upper", frameon=False)
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "disttrain"}):
            figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_median(axes: Axes, name: str, runs: Sequence[Points]) -> None:
    if not runs:
        return
    places = _shared_places(runs)
    upwards = numpy.array([_interpolated(run, places) for run in runs])
    marker = "o" if len(places) < _PLACES else ""
    (line,) = axes.plot(places, numpy.median(upwards, axis=0), label=name, marker=marker)
    axes.fill_between(
        places, upwards.min(axis=0), upwards.max(axis=0), color=line.get_color(), alpha=0.15
    )


def _interpolated(run: Points, places: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
    across, upwards = numpy.array(sorted(run), dtype=numpy.float64).T
    return numpy.asarray(numpy.interp(places, across, upwards), dtype=numpy.float64)


def _shared_places(runs: Sequence[Points]) -> NDArray[numpy.float64]:
    """Of a single run its own; of several where all of them were measured, evenly."""
    if len(runs) == 1:
        return numpy.array(sorted(across for across, _ in runs[0]), dtype=numpy.float64)
    first = max(min(across for across, _ in run) for run in runs)
    last = min(max(across for across, _ in run) for run in runs)
    return numpy.linspace(first, last, _PLACES)
