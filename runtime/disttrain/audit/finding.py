"""What the audit says about one promise. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

_MOST_SHOWN = 10


class Verdict(StrEnum):
    """Whether a promise was kept."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_APPLICABLE = "not applicable"
    NOT_WHOLE = "not whole"
    """Of the logs themselves: records are missing, so that what they contradict proves nothing."""
    NOT_CHECKABLE = "not checkable"
    """The logs do not say; the evidence says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One promise, its verdict, and the numbers behind it."""

    promise: str
    verdict: Verdict
    evidence: str
    violations: tuple[str, ...] = ()
    """Sentences; the first ones and how many more there are."""


def judge(promise: str, violations: Iterable[str], evidence: str) -> Finding:
    found = list(violations)
    shown = found[:_MOST_SHOWN]
    if len(found) > len(shown):
        shown.append(f"and {len(found) - len(shown)} more")
    return Finding(
        promise=promise,
        verdict=Verdict.VIOLATED if found else Verdict.HELD,
        evidence=evidence,
        violations=tuple(shown),
    )


def not_checkable(promise: str, why: str) -> Finding:
    return Finding(promise=promise, verdict=Verdict.NOT_CHECKABLE, evidence=why)


def not_applicable(promise: str, why: str) -> Finding:
    """The promise is about something that this job does not do."""
    return Finding(promise=promise, verdict=Verdict.NOT_APPLICABLE, evidence=why)


def without(finding: Finding, logs: Sequence[str]) -> Finding:
    """The same, which says whose logs it could not compare."""
    if not logs or finding.verdict is Verdict.NOT_APPLICABLE:
        return finding
    some, more = logs[:_MOST_SHOWN], len(logs) - _MOST_SHOWN
    named = ", ".join(some) + (f" and {more} more" if more > 0 else "")
    return replace(finding, evidence=f"{finding.evidence}; without the log of {named}")


def in_doubt(finding: Finding, other: str) -> Finding:
    """What the logs contradict may be a broken promise, or follow from what `other` found."""
    if finding.verdict is not Verdict.VIOLATED:
        return finding
    evidence = f"{finding.evidence}; but see: {other}"
    return replace(finding, verdict=Verdict.NOT_CHECKABLE, evidence=evidence)
