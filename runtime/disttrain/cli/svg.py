"""What all pictures of commands have around what they draw. Pure."""

from collections.abc import Iterable
from xml.sax.saxutils import escape


def document(width: int, height: int, left: int, title: str, elements: Iterable[str]) -> str:
    """A white picture of so many pixels, with a title that begins at `left`."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="24" font-size="14">{escape(title)}</text>',
        *elements,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
