"""Lines of logs: which were shown already when a connection broke, and how they look. Pure."""

from dataclasses import dataclass
from typing import Final

_DIGITS: Final = 9
"""Digits of a fraction of a second; trailing zeros are left out of what arrives."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line with its time stamp, as `timestamps=true` gives it."""

    stamp: str
    text: str

    @property
    def key(self) -> str:
        """The time stamp with all digits, so that texts compare as instants do."""
        whole, _, fraction = self.stamp.removesuffix("Z").partition(".")
        return f"{whole}.{fraction:0<{_DIGITS}}"


def parse(line: str) -> LogLine:
    """Split a line into its time stamp and its text."""
    stamp, _, text = line.partition(" ")
    return LogLine(stamp, text)


def is_new(line: LogLine, last: LogLine | None) -> bool:
    """Whether a line came after the last one that was shown."""
    return last is None or line.key > last.key


def prefix(pod: str, container: str) -> str:
    """What stands before each line when several pods are shown, as kubectl has it."""
    return f"[pod/{pod}/{container}] "
