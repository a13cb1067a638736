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
    only_groups = evidence.batch_method and not evidence.warm_start
    findings = _of_groups(evidence) if only_groups else _of_updates(evidence)
    whole = logs.check(evidence)
    if whole.standing is Standing.NOT_WHOLE:
        findings = tuple(in_doubt(finding, whole.promise) for finding in findings)
    return (*findings, whole)


def _of_updates(evidence: Evidence) -> tuple[Finding, ...]:
    """Of a batch method, updates, samples and epochs are those of its warm start."""
    histories = history.of_all(evidence)
    if evidence.batch_method:
        once = exactly_once.check(evidence)
        torn = not_applicable(torn_reads.PROMISE, _SAME_BITS)
    else:
        once = not_applicable(exactly_once.PROMISE, "the strategy is downpour")
        torn = torn_reads.check(evidence)
    return (
        lost_updates.check(evidence, histories),
        at_most_once.check(evidence, histories),
        once,
        versions.check(evidence),
        torn,
        *_of_all(evidence),
        samples.check(evidence, histories),
        coverage.check(evidence),
    )


def _of_groups(evidence: Evidence) -> tuple[Finding, ...]:
    return (
        not_applicable(lost_updates.PROMISE, _INSTEAD),
        not_applicable(at_most_once.PROMISE, _INSTEAD),
        exactly_once.check(evidence),
        not_applicable(versions.PROMISE, _INSTEAD),
        not_applicable(torn_reads.PROMISE, _SAME_BITS),
        *_of_all(evidence),
    )


def _of_all(evidence: Evidence) -> tuple[Finding, ...]:
    return (
        refusals.check(evidence),
        recovery.check(evidence),
        fencing.check(evidence),
    )


def is_clean(findings: Sequence[Finding]) -> bool:
    return all(finding.standing not in _UNCLEAN for finding in findings)
