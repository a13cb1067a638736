"""Instants and durations as kubectl writes them. Pure but for `now`."""

from datetime import UTC, datetime


def parse(text: str) -> datetime:
    """An instant of the API server: RFC 3339, with or without a fraction."""
    return datetime.fromisoformat(text)


def short(seconds: float) -> str:
    """A duration as `42s`, `5m3s`, `3h20m` or `12d`: the two parts that matter."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        return _joined(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _joined(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    return _joined(days, "d", hours % 24, "h") if days < 8 else f"{days}d"


def since(text: str | None, now: datetime) -> str:
    """How long ago an instant was; `<unknown>` without one."""
    return "<unknown>" if not text else short(seconds_since(text, now))


def seconds_since(text: str, now: datetime) -> float:
    return (now - parse(text)).total_seconds()


def now() -> datetime:
    """The present instant; the only clock of this package."""
    return datetime.now(UTC)


def _joined(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}" + (f"{small}{small_unit}" if small else "")
