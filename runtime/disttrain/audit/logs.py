"""Whether the logs that all other checks compare are whole."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from disttrain.audit.evidence import Evidence, Incarnation, name_of
from disttrain.audit.finding import Finding, Verdict, judge
from disttrain.job import names
from disttrain.parameter_server.deliveries import SenderIncarnation

PROMISE = "logs are whole"

_ELSEWHERE = ": it joined from elsewhere, give its output folder with --ledger"


def check(evidence: Evidence) -> Finding:
    """Files can be read, no record is left out, each incarnation that others tell of has a log."""
    incarnations = [*evidence.shard_incarnations, *evidence.replica_incarnations]
    violations = [
        *(f"{file} cannot be read" for file in evidence.unreadable),
        *(text for incarnation in incarnations for text in _cut_short(incarnation)),
        *_absent(evidence),
    ]
    records = sum(len(incarnation.records) for incarnation in incarnations)
    finding = judge(
        PROMISE, violations, f"{records} records in the logs of {len(incarnations)} incarnations"
    )
    return replace(finding, verdict=Verdict.NOT_WHOLE) if violations else finding


def _cut_short(incarnation: Incarnation) -> Iterator[str]:
    if incarnation.missing:
        missing = f"lacks {incarnation.missing} records: its disk was full"
        yield f"the log of {incarnation.name} {missing}"
    if incarnation.ends_in_half:
        yield f"the log of {incarnation.name} ends in half a record"


def _absent(evidence: Evidence) -> Iterator[str]:
    """Every answer is of a shard that logs, and every update of a replica that does."""
    first = min((log.run for log in evidence.shard_incarnations), default=0)
    if first:
        yield f"no log is of the first {first} runs in the folder: was their spec.audit off?"
    answers = ("shard", "shard_incarnation")
    shards = {(log.index, log.incarnation) for log in evidence.shard_incarnations}
    for index, incarnation in _told_of(evidence.replica_incarnations, answers):
        if (index, incarnation) not in shards:
            yield f"{names.shard_name(index)} (incarnation {incarnation}) answered, but has no log"
    for sender in _absent_replicas(evidence):
        where = "" if sender.sender < _joiners_from(evidence) else _ELSEWHERE
        yield f"{name_of(sender)} pushed, but has no log{where}"


def absent_replicas(evidence: Evidence) -> list[str]:
    """Names of the incarnations of replicas whose updates shards log, and whose logs are absent."""
    return [name_of(sender) for sender in _absent_replicas(evidence)]


def _absent_replicas(evidence: Evidence) -> list[SenderIncarnation]:
    known = {log.sender for log in evidence.replica_incarnations}
    told = _told_of(evidence.shard_incarnations, ("sender", "incarnation"))
    return [sender for sender in (SenderIncarnation(*each) for each in told) if sender not in known]


def _joiners_from(evidence: Evidence) -> float:
    return math.inf if evidence.joiners_from is None else evidence.joiners_from


def _told_of(
    incarnations: Iterator[Incarnation], columns: tuple[str, str]
) -> list[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for log in incarnations:
        records = log.each()
        pairs = np.stack([records[column].astype(np.int64) for column in columns], axis=1)
        found |= {(int(index), int(incarnation)) for index, incarnation in np.unique(pairs, axis=0)}
    return sorted(found)
