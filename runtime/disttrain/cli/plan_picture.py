"""What partitions gain, as a picture. Pure."""

import math
from collections.abc import Iterator, Sequence

from disttrain.cli import svg

_WIDTH, _HEIGHT, _MARGIN = 640, 400, 60
_LINES = 5

Point = tuple[int, float]
"""Partitions, and how many times as fast as the fewest."""


def draw(points: Sequence[Point], title: str) -> str:
    """Speed-up over partitions, beside what it would be if nothing crossed. At least one point."""
    fewest = points[0][0]
    ideal = [(count, count / fewest) for count, _ in points]
    highest = max(gained for _, gained in (*points, *ideal))
    elements = [
        *_axes(points, highest),
        _line(ideal, points, highest, 'stroke="gray" stroke-dasharray="4 4"'),
        _line(points, points, highest, 'stroke="#1f77b4" stroke-width="2"'),
        *(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1f77b4"/>'
            for x, y in _places(points, points, highest)
        ),
    ]
    return svg.document(_WIDTH, _HEIGHT, _MARGIN, title, elements)


def _axes(points: Sequence[Point], highest: float) -> Iterator[str]:
    bottom = _HEIGHT - _MARGIN
    for (count, _), (x, _) in zip(points, _places(points, points, highest), strict=True):
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{count}</text>'
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 14}" text-anchor="middle">partitions</text>'
    for number in range(_LINES + 1):
        gained = highest * number / _LINES
        y = _upwards(gained, highest)
        yield (
            f'<line x1="{_MARGIN}" y1="{y:.1f}" x2="{_WIDTH - _MARGIN}" y2="{y:.1f}" '
            'stroke="lightgray"/>'
        )
        label = f'<text x="{_MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{gained:.3g}</text>'
        yield label
    yield (
        f'<text x="16" y="{_HEIGHT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 16 {_HEIGHT / 2})">times as fast</text>'
    )


def _line(points: Sequence[Point], all_points: Sequence[Point], highest: float, how: str) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in _places(points, all_points, highest))
    return f'<polyline points="{places}" fill="none" {how}/>'


def _places(
    points: Sequence[Point], all_points: Sequence[Point], highest: float
) -> Iterator[tuple[float, float]]:
    """By the logarithm of partitions."""
    first, last = (math.log(all_points[end][0]) for end in (0, -1))
    span = (last - first) or 1.0
    for count, gained in points:
        along = (math.log(count) - first) / span
        yield _MARGIN + along * (_WIDTH - 2 * _MARGIN), _upwards(gained, highest)


def _upwards(gained: float, highest: float) -> float:
    return _HEIGHT - _MARGIN - gained / highest * (_HEIGHT - 2 * _MARGIN)
