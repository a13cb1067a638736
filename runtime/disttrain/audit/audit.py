"""All checks on one run. Pure."""

from collections.abc import Iterator, Sequence

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
    findings = tuple(_promises(evidence))
    whole = logs.check(evidence)
    if whole.standing is Standing.NOT_WHOLE:
        findings = tuple(in_doubt(finding, whole.promise) for finding in findings)
    return (*findings, whole)


def _promises(evidence: Evidence) -> Iterator[Finding]:
    """Of a batch method, updates, samples and epochs are those of its warm start."""
    of_groups, of_updates = evidence.batch_method, not evidence.batch_method or evidence.warm_start
    histories = history.of_all(evidence) if of_updates else []
    if of_updates:
        yield lost_updates.check(evidence, histories)
        yield at_most_once.check(evidence, histories)
    else:
        yield not_applicable(lost_updates.PROMISE, _INSTEAD)
        yield not_applicable(at_most_once.PROMISE, _INSTEAD)
    if of_groups:
        yield exactly_once.check(evidence)
    else:
        yield not_applicable(exactly_once.PROMISE, "the strategy is downpour")
    yield versions.check(evidence) if of_updates else not_applicable(versions.PROMISE, _INSTEAD)
    if of_groups:
        yield not_applicable(torn_reads.PROMISE, _SAME_BITS)
    else:
        yield torn_reads.check(evidence)
    yield refusals.check(evidence)
    yield recovery.check(evidence)
    yield fencing.check(evidence)
    if of_updates:
        yield samples.check(evidence, histories)
        yield coverage.check(evidence)


def is_clean(findings: Sequence[Finding]) -> bool:
    return all(finding.standing not in _UNCLEAN for finding in findings)
