"""Errors of the manifest.

FinalError
└── InvalidManifest    one or more findings, all of them at once
"""

from collections.abc import Sequence

from disttrain.errors import FinalError
from disttrain.job.finding import Finding, located_lines


class InvalidManifest(FinalError):
    """A manifest that no job can be made of; its text is one line per finding."""

    def __init__(self, source: str, findings: Sequence[Finding]) -> None:
        """Keep the findings; `source` is the file's name as the user gave it."""
        super().__init__("\n".join(located_lines(findings, source)))
        self.source = source
        self.findings = tuple(findings)
