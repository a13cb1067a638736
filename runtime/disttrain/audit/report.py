"""How findings are shown: a table for people, JSON for tools. Pure."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from disttrain.audit.audit import is_clean
from disttrain.audit.finding import Finding, Standing

_WIDTH = 100
_STANDING_WIDTH = 2 + max(map(len, Standing))


def text(findings: Sequence[Finding], *, running: bool = False) -> str:
    """One row per promise, what was violated below it, and a last line with the result.

    Of a run that is `running` the first line says so.
    """
    head = ["the run is still going on: all that follows is of now"] if running else []
    rows = [_row(finding) for finding in findings]
    return "\n".join([*head, *rows, _result(findings)]) + "\n"


def _result(findings: Sequence[Finding]) -> str:
    if is_clean(findings):
        return "nothing was violated"
    if any(finding.standing is Standing.VIOLATED for finding in findings):
        return "PROMISES WERE VIOLATED"
    in_doubt = (finding for finding in findings if finding.standing is Standing.NOT_WHOLE)
    missing = "; ".join(said for finding in in_doubt for said in finding.violations)
    return f"cannot be judged: {missing}"


def _row(finding: Finding) -> str:
    head = f"{finding.standing:<{_STANDING_WIDTH}}{finding.promise}"
    details = [finding.evidence, *(f"- {said}" for said in finding.violations)]
    return "\n".join([head, *(line for detail in details for line in _wrapped(detail))])


def _wrapped(detail: str) -> list[str]:
    indent = " " * _STANDING_WIDTH
    return textwrap.wrap(detail, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def to_json(findings: Sequence[Finding], *, running: bool = False) -> str:
    """One object: `held` for all of it, whether the run is `running`, and the findings."""
    content = {
        "held": is_clean(findings),
        "running": running,
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(content, indent=2) + "\n"
