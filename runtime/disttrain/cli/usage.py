"""The line `Usage: ...` of a command's help."""

from typing import Any

from typer.core import TyperCommand


class PlainUsage(TyperCommand):
    """Writes required arguments as they are typed; typer puts them into braces."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # its type is private to typer
        """The parts after the command's name."""
        pieces: list[str] = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]
