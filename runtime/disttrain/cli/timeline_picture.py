"""Gradients and updates of an asynchronous run over time, as a picture. Pure."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from disttrain.audit.timeline import Computed
from disttrain.cli import svg

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 90, 30, 40, 50
_LANE, _GAP, _UPDATES = 15, 10, 34
_COLOURS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#17becf")
_TICKS = 6
_WIDE_ENOUGH = 14.0
"""Pixels of a bar that has its staleness written into it."""


def draw(found: Sequence[Computed], title: str) -> str:
    """A row for each replica, and one for the shard, which has a mark for each update.

    A bar begins when the values came to be that a gradient was computed with, and ends when the
    gradient was applied; the number in it is its staleness. At least one gradient.
    """
    scale = _Scale(found)
    rows, marks, y = list[str](), list[str](), _TOP
    for row, replica in enumerate(sorted({each.replica for each in found})):
        own = [each for each in found if each.replica == replica]
        lanes, colour = _lanes(own), _COLOURS[row % len(_COLOURS)]
        rows.append(_name(f"replica {replica}", y + _LANE * len(lanes) / 2))
        for lane in lanes:
            rows += (_bar(each, y, colour, scale) for each in lane)
            y += _LANE
        y += _GAP
        marks += (_mark(each, colour, scale) for each in own)
    height = y + _UPDATES + _BOTTOM
    elements = [
        *rows,
        _name("updates", y + _UPDATES / 2),
        f'<g transform="translate(0 {y})">',
        *marks,
        "</g>",
        *_axis(scale, y + _UPDATES),
    ]
    return svg.document(_WIDTH, height, _LEFT, title, elements)


class _Scale:
    def __init__(self, found: Sequence[Computed]) -> None:
        self.first = min(each.read_seconds for each in found)
        self.last = max(each.applied_seconds for each in found)

    def __call__(self, seconds: float) -> float:
        span = (self.last - self.first) or 1.0
        return _LEFT + (seconds - self.first) / span * (_WIDTH - _LEFT - _RIGHT)


def _lanes(own: Sequence[Computed]) -> list[list[Computed]]:
    """Gradients that are under way at once below each other, in as few lanes as they need."""
    lanes: list[list[Computed]] = []
    for each in own:
        free = (lane for lane in lanes if lane[-1].applied_seconds <= each.read_seconds)
        lane = next(free, None)
        if lane is None:
            lanes.append([each])
        else:
            lane.append(each)
    return lanes


def _name(text: str, middle: float) -> str:
    return f'<text x="{_LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{text}</text>'


def _bar(each: Computed, top: int, colour: str, scale: _Scale) -> str:
    x, end = scale(each.read_seconds), scale(each.applied_seconds)
    bar = (
        f'<rect x="{x:.1f}" y="{top}" width="{max(1.0, end - x - 1):.1f}" height="{_LANE - 1}" '
        f'rx="3" fill="{colour}"/>'
    )
    if end - x < _WIDE_ENOUGH:
        return bar
    return (
        f'{bar}<text x="{(x + end) / 2:.1f}" y="{top + 11}" font-size="11" text-anchor="middle" '
        f'fill="white">{each.staleness}</text>'
    )


def _mark(each: Computed, colour: str, scale: _Scale) -> str:
    x = scale(each.applied_seconds)
    return (
        f'<line x1="{x:.1f}" y1="4" x2="{x:.1f}" y2="{_UPDATES - 4}" '
        f'stroke="{colour}" stroke-width="2"/>'
    )


def _axis(scale: _Scale, y: int) -> Iterator[str]:
    span = scale.last - scale.first
    decimals = max(0, 2 - math.floor(math.log10(span / _TICKS))) if span > 0 else 3
    yield f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="gray"/>'
    for tick in range(_TICKS + 1):
        seconds = scale.first + span * tick / _TICKS
        x = scale(seconds)
        yield f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 5}" stroke="gray"/>'
        text = f"{seconds:.{decimals}f}"
        yield f'<text x="{x:.1f}" y="{y + 19}" text-anchor="middle">{text}</text>'
    yield f'<text x="{_WIDTH / 2}" y="{y + 38}" text-anchor="middle">seconds</text>'
