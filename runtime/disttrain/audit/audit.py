"""All checks on one run. Pure."""

from collections.abc import Sequence

from disttrain.audit import (
    at_most_once,
    coverage,
    exactly_once,
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

_INSTEAD = "gradients of groups count when an evaluation is complete: see promise 3"
_UNCLEAN = frozenset({Standing.VIOLATED, Standing.NOT_WHOLE})
_SAME_BITS = "a batch method keeps no chunks: run the manifest again, it gives the same bits"


def audit(evidence: Evidence) -> tuple[Finding, ...]:
    findings = _of_a_batch_method(evidence) if evidence.batch_method else _of_downpour(evidence)
    whole = logs.check(evidence)
    if whole.standing is Standing.NOT_WHOLE:
        findings = tuple(in_doubt(finding, whole.promise) for finding in findings)
    return (*findings, whole)


def _of_downpour(evidence: Evidence) -> tuple[Finding, ...]:
    histories = history.of_all(evidence)
    return (
        lost_updates.check(evidence, histories),
        at_most_once.check(evidence, histories),
        not_applicable(exactly_once.PROMISE, "the strategy is downpour"),
        versions.check(evidence),
        torn_reads.check(evidence),
        *_of_all(evidence),
        samples.check(evidence, histories),
        coverage.check(evidence),
    )


def _of_a_batch_method(evidence: Evidence) -> tuple[Finding, ...]:
    if evidence.warm_start:
        return _with_a_warm_start(evidence)
    return (
        not_applicable(lost_updates.PROMISE, _INSTEAD),
        not_applicable(at_most_once.PROMISE, _INSTEAD),
        exactly_once.check(evidence),
        not_applicable(versions.PROMISE, _INSTEAD),
        not_applicable(torn_reads.PROMISE, _SAME_BITS),
        *_of_all(evidence),
    )


def _with_a_warm_start(evidence: Evidence) -> tuple[Finding, ...]:
    """Updates, samples and epochs are those of the warm start."""
    histories = history.of_all(evidence)
    return (
        lost_updates.check(evidence, histories),
        at_most_once.check(evidence, histories),
        exactly_once.check(evidence),
        versions.check(evidence),
        not_applicable(torn_reads.PROMISE, _SAME_BITS),
        *_of_all(evidence),
        samples.check(evidence, histories),
        coverage.check(evidence),
    )


def _of_all(evidence: Evidence) -> tuple[Finding, ...]:
    return (
        refusals.check(evidence),
        recovery.check(evidence),
        fencing.check(evidence),
    )


def is_clean(findings: Sequence[Finding]) -> bool:
    return all(finding.standing not in _UNCLEAN for finding in findings)
