"""Instants as the API writes them."""

from datetime import UTC, datetime


def text(instant: datetime) -> str:
    """The instant in UTC, to the second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise(instant: datetime) -> str:
    """The instant in UTC, to the microsecond, as Leases have it."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
