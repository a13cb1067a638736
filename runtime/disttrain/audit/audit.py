"""All checks on one run. Pure."""

from collections.abc import Sequence

from disttrain.audit import (
    at_most_once,
    coverage,
    fencing,
    history,
    logs,
    lost_updates,
    recovery,
    refusals,
    samples,
    torn_reads,
    versions,
)
from disttrain.audit.evidence import Evidence
from disttrain.audit.finding import Finding, Standing, in_doubt, not_applicable

_SANDBLASTER = "3. every portion counts exactly once per batch (Sandblaster)"


def audit(evidence: Evidence) -> tuple[Finding, ...]:
    """What held, promise by promise."""
    histories = history.of_all(evidence)
    findings: tuple[Finding, ...] = (
        lost_updates.check(evidence, histories),
        at_most_once.check(evidence, histories),
        not_applicable(_SANDBLASTER, "the strategy is downpour"),
        versions.check(evidence),
        torn_reads.check(evidence),
        refusals.check(evidence),
        recovery.check(evidence),
        fencing.check(evidence),
        samples.check(evidence, histories),
        coverage.check(evidence),
    )
    whole = logs.check(evidence)
    if whole.standing is Standing.VIOLATED:
        findings = tuple(in_doubt(finding, whole.promise) for finding in findings)
    return (*findings, whole)


def is_clean(findings: Sequence[Finding]) -> bool:
    """Whether nothing was violated."""
    return all(finding.standing is not Standing.VIOLATED for finding in findings)
