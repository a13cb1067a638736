"""Instants as the API writes them, and reading them."""

from datetime import UTC, datetime


def parse(value: object) -> datetime | None:
    """The instant, or None for what is none."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    # One without a zone stands in no object of the API, but may stand in an annotation.
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


def text(instant: datetime) -> str:
    """The instant in UTC, to the second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise(instant: datetime) -> str:
    """The instant in UTC, to the microsecond, as Leases have it."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
