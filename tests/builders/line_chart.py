"""Lines over two axes as an SVG picture, by nothing but text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#b8860b", "#6a4c93", "#444444")
_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 230, 40, 48
_TICKS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class LineChart:
    """What the axes are; each name has one colour and one or more lines."""

    title: str
    across: str
    upwards: str

    def drawn(self, lines: Mapping[str, Sequence[Points]]) -> str:
        """The picture; both axes begin at 0."""
        points = [point for several in lines.values() for one in several for point in one]
        most = tuple(max((point[axis] for point in points), default=1.0) or 1.0 for axis in (0, 1))
        parts = [*self._frame(most[0], most[1])]
        for at, (name, several) in enumerate(lines.items()):
            colour = _COLOURS[at % len(_COLOURS)]
            parts += [_line(one, (most[0], most[1]), colour) for one in several if one]
            parts.append(_legend(at, name, colour))
        content = "\n".join(parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'font-family="sans-serif" font-size="12">\n'
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>\n{content}\n</svg>\n'
        )

    def _frame(self, across: float, upwards: float) -> list[str]:
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        parts = [
            _text(_LEFT, 22, self.title, "start"),
            _text((_LEFT + right) / 2, _HEIGHT - 10, self.across, "middle"),
            _text(_LEFT, _TOP - 4, self.upwards, "middle"),
            f'<path d="M{_LEFT},{_TOP} V{bottom} H{right}" fill="none" stroke="#444"/>',
        ]
        for tick in range(_TICKS + 1):
            part = tick / _TICKS
            x, y = _place((part * across, part * upwards), (across, upwards))
            parts.append(_text(x, bottom + 18, f"{part * across:.3g}", "middle"))
            parts.append(_text(_LEFT - 8, y + 4, f"{part * upwards:.3g}", "end"))
        return parts


def _place(point: tuple[float, float], most: tuple[float, float]) -> tuple[float, float]:
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return _LEFT + width * point[0] / most[0], _HEIGHT - _BOTTOM - height * point[1] / most[1]


def _line(points: Points, most: tuple[float, float], colour: str) -> str:
    places = [_place(point, most) for point in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in places)
    return (
        f'<g fill="{colour}" stroke="none"><polyline points="{path}" fill="none" '
        f'stroke="{colour}" stroke-width="1.6" opacity="0.8"/>{dots}</g>'
    )


def _legend(at: int, name: str, colour: str) -> str:
    x, y = _WIDTH - _RIGHT + 20, _TOP + 20 * at
    box = f'<rect x="{x}" y="{y}" width="14" height="4" fill="{colour}"/>'
    return box + _text(x + 20, y + 6, name, "start")


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
