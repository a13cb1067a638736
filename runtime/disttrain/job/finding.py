"""What can be wrong with a manifest, and where: paths and findings."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from disttrain.errors import FinalError
from disttrain.job import terminal_text

Path = tuple[str | int, ...]
"""Field names and list indices, from the top of the manifest; field names as they are written."""

_PLAIN_NAME = re.compile(r"[^\W\d][\w-]*|<<")


def render(path: Path) -> str:
    """Return a path as text, such as `spec.stop.epochs`, `points[1]` or `labels['a.b/c']`."""
    text = ""
    for part in path:
        if isinstance(part, str) and _PLAIN_NAME.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


class Severity(StrEnum):
    """Whether a job may run in spite of a finding."""

    ERROR = "error"
    """The job is refused."""
    WARNING = "warning"
    """The job runs; it is probably not what was meant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is wrong with a manifest."""

    path: Path
    """Where; empty for the manifest as a whole."""
    message: str
    """The rule, the value seen, and what to do; no path and no line in it."""
    severity: Severity = Severity.ERROR
    """Whether the job may run."""
    line: int | None = None
    """Line in the file, from 1. None: not from a file, as a value given by `--set`."""

    def __str__(self) -> str:
        """Return path and message, without the line, as one line that is safe to print."""
        said = f"{render(self.path)}: {self.message}" if self.path else self.message
        return terminal_text.one_line(said)

    def located(self, source: str) -> str:
        """Return `SOURCE:LINE: PATH: MESSAGE`, with `warning:` before the path of a warning."""
        place = source if self.line is None else f"{source}:{self.line}"
        warning = "warning: " if self.severity is Severity.WARNING else ""
        return f"{place}: {warning}{self}"


def located_lines(findings: Iterable[Finding], source: str) -> tuple[str, ...]:
    return tuple(finding.located(source) for finding in findings)


class InvalidManifest(FinalError):
    """A manifest that no job can be made of; its text is one line per finding."""

    def __init__(self, source: str, findings: Sequence[Finding]) -> None:
        """Keep the findings; `source` is the file's name as the user gave it."""
        super().__init__("\n".join(located_lines(findings, source)))
        self.source = source
        self.findings = tuple(findings)
