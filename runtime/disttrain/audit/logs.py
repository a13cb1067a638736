"""Whether the logs that all other checks compare are whole."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from disttrain.audit.evidence import Evidence, Life
from disttrain.audit.finding import Finding, Verdict, judge
from disttrain.job import names

PROMISE = "logs are whole"


def check(evidence: Evidence) -> Finding:
    """Files can be read, no record is left out, and no life of which others tell has no log."""
    lives = [*evidence.shard_lives, *evidence.replica_lives]
    violations = [
        *(f"{file} cannot be read" for file in evidence.unreadable),
        *(text for life in lives for text in _cut_short(life)),
        *_absent(evidence),
    ]
    records = sum(len(life.records) for life in lives)
    finding = judge(PROMISE, violations, f"{records} records in the logs of {len(lives)} lives")
    return replace(finding, verdict=Verdict.NOT_WHOLE) if violations else finding


def _cut_short(life: Life) -> Iterator[str]:
    if life.missing:
        yield f"the log of {life.name} lacks {life.missing} records: its disk was full"
    if life.ends_in_half:
        yield f"the log of {life.name} ends in half a record"


def _absent(evidence: Evidence) -> Iterator[str]:
    """Every answer is of a shard that logs, and every update of a replica that does."""
    first = min((life.run for life in evidence.shard_lives), default=0)
    if first:
        yield f"no log is of the first {first} runs in the folder: was their spec.audit off?"
    answers = ("shard", "shard_incarnation")
    shards = {(life.index, life.incarnation) for life in evidence.shard_lives}
    for index, incarnation in _told_of(evidence.replica_lives, answers):
        if (index, incarnation) not in shards:
            yield f"{names.shard_name(index)} (life {incarnation}) answered, but has no log"
    updates = ("sender", "incarnation")
    replicas = {(life.index, life.incarnation) for life in evidence.replica_lives}
    for index, incarnation in _told_of(evidence.shard_lives, updates):
        if (index, incarnation) not in replicas:
            yield f"{names.replica_name(index)} (life {incarnation}) pushed, but has no log"


def _told_of(lives: Iterator[Life], columns: tuple[str, str]) -> list[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for life in lives:
        records = life.each()
        pairs = np.stack([records[column].astype(np.int64) for column in columns], axis=1)
        found |= {(int(index), int(incarnation)) for index, incarnation in np.unique(pairs, axis=0)}
    return sorted(found)
