"""How findings are shown: a table for people, JSON for tools. Pure."""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from disttrain.audit.audit import is_clean
from disttrain.audit.finding import Finding, Standing

_WIDTH = 100
_STANDING_WIDTH = 2 + max(map(len, Standing))


def text(findings: Sequence[Finding]) -> str:
    """One row per promise, what was violated below it, and a last line with the result."""
    rows = [_row(finding) for finding in findings]
    result = "nothing was violated" if is_clean(findings) else "PROMISES WERE VIOLATED"
    return "\n".join([*rows, result]) + "\n"


def _row(finding: Finding) -> str:
    head = f"{finding.standing:<{_STANDING_WIDTH}}{finding.promise}"
    details = [finding.evidence, *(f"- {said}" for said in finding.violations)]
    return "\n".join([head, *(line for detail in details for line in _wrapped(detail))])


def _wrapped(detail: str) -> list[str]:
    indent = " " * _STANDING_WIDTH
    return textwrap.wrap(detail, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def to_json(findings: Sequence[Finding]) -> str:
    """One object: `held` for all of it, and the findings."""
    content = {"held": is_clean(findings), "findings": [_json(finding) for finding in findings]}
    return json.dumps(content, indent=2) + "\n"


def _json(finding: Finding) -> dict[str, Any]:
    return {
        "promise": finding.promise,
        "standing": finding.standing,
        "evidence": finding.evidence,
        "violations": list(finding.violations),
    }
