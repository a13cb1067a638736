"""Instants as the API writes them."""

from datetime import UTC, datetime


def text(instant: datetime) -> str:
    """The instant in UTC, to the second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
