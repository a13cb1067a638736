"""All checks on one run, and what is shown of them: text for people, JSON for tools. Pure."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

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
from disttrain.audit.finding import Finding, Verdict, in_doubt, not_applicable, without

_INSTEAD = "gradients of groups count when an evaluation is complete: see promise 3"
_OF_REPLICAS = frozenset(
    each.PROMISE
    for each in (lost_updates, versions, torn_reads, refusals, recovery, samples, coverage)
)
"""What compares logs of replicas; for all else those of shards, journal and summary do."""
_UNCLEAN = frozenset({Verdict.VIOLATED, Verdict.NOT_WHOLE})
_WIDTH = 100
_VERDICT_WIDTH = 2 + max(map(len, Verdict))
_SAME_BITS = "a batch method keeps no chunks: run the manifest again, it gives the same bits"


def audit(evidence: Evidence) -> tuple[Finding, ...]:
    absent = logs.absent_replicas(evidence)
    findings = tuple(
        without(finding, absent) if finding.promise in _OF_REPLICAS else finding
        for finding in _promises(evidence)
    )
    whole = logs.check(evidence)
    if whole.verdict is Verdict.NOT_WHOLE:
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
        yield not_applicable(exactly_once.PROMISE, "the strategy has no batches of all replicas")
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
    return all(finding.verdict not in _UNCLEAN for finding in findings)


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
    if any(finding.verdict is Verdict.VIOLATED for finding in findings):
        return "PROMISES WERE VIOLATED"
    in_doubt = (finding for finding in findings if finding.verdict is Verdict.NOT_WHOLE)
    missing = "; ".join(said for finding in in_doubt for said in finding.violations)
    return f"cannot be judged: {missing}"


def _row(finding: Finding) -> str:
    head = f"{finding.verdict:<{_VERDICT_WIDTH}}{finding.promise}"
    details = [finding.evidence, *(f"- {said}" for said in finding.violations)]
    return "\n".join([head, *(line for detail in details for line in _wrapped(detail))])


def _wrapped(detail: str) -> list[str]:
    indent = " " * _VERDICT_WIDTH
    return textwrap.wrap(detail, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def to_json(findings: Sequence[Finding], *, running: bool = False) -> str:
    """One object: `held` for all of it, whether the run is `running`, and the findings."""
    content = {
        "held": is_clean(findings),
        "running": running,
        # By its older name, too, for programs that ask for that.
        "findings": [{"standing": each.verdict, **asdict(each)} for each in findings],
    }
    return json.dumps(content, indent=2) + "\n"
