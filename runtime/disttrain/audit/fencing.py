"""Promise 8: two incarnations never both write, neither of a replica nor of a shard."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from disttrain.audit.evidence import Evidence, Incarnation
from disttrain.audit.finding import Finding, judge
from disttrain.parameter_server.ledger import Kind

PROMISE = "8. two incarnations never both write"

_WRITES = (Kind.PUSHED, Kind.PUSHES_FOLDED, Kind.CHUNK_APPLIED)


def check(evidence: Evidence) -> Finding:
    """Of an incarnation that was fenced or has a successor, nothing is applied."""
    violations = [
        *(
            text
            for incarnation in evidence.shard_incarnations
            for text in _late_writes(incarnation)
        ),
        *_readmitted(evidence),
        *_two_shards(evidence),
    ]
    fenced = sum(len(incarnation.of(Kind.FENCED)) for incarnation in evidence.shard_incarnations)
    admitted = sum(
        len(incarnation.of(Kind.ADMITTED)) for incarnation in evidence.shard_incarnations
    )
    text = f"{admitted} admissions and {fenced} fences; nothing was applied after its fence"
    return judge(PROMISE, violations, text)


def _late_writes(log: Incarnation) -> Iterator[str]:
    over: dict[int, int] = {}
    for record in log.of(*_WRITES, Kind.FENCED, Kind.ADMITTED):
        sender, incarnation = int(record["sender"]), int(record["incarnation"])
        kind = int(record["kind"])
        if kind == Kind.FENCED:
            over[sender] = max(incarnation, over.get(sender, 0))
            continue
        if kind in _WRITES and incarnation <= over.get(sender, 0):
            yield (
                f"{log.name} applied push {record['sequence']} of replica-{sender} "
                f"(incarnation {incarnation}), which had been fenced"
            )
        over[sender] = max(incarnation - 1, over.get(sender, 0))


def _readmitted(evidence: Evidence) -> Iterator[str]:
    """A rollback must not let in who was fenced by an earlier incarnation of the shard."""
    for incarnations in evidence.shards.values():
        fenced: dict[int, int] = {}
        for log in incarnations:
            for record in log.of(*_WRITES):
                sender, incarnation = int(record["sender"]), int(record["incarnation"])
                if incarnation <= fenced.get(sender, 0):
                    yield (
                        f"{log.name} applied push {record['sequence']} of replica-{sender} "
                        f"(incarnation {incarnation}), which an earlier incarnation had fenced"
                    )
            for record in log.of(Kind.FENCED):
                sender = int(record["sender"])
                fenced[sender] = max(int(record["incarnation"]), fenced.get(sender, 0))


def _two_shards(evidence: Evidence) -> Iterator[str]:
    """An earlier incarnation of a shard writes nothing once a later one does."""
    for incarnations in evidence.shards.values():
        for before, after in pairwise(incarnations):
            old, new = _write_times(before), _write_times(after)
            if len(old) and len(new) and np.max(old) > np.min(new):
                yield f"{before.name} applied updates after {after.name} had begun to"


def _write_times(incarnation: Incarnation) -> NDArray[np.uint64]:
    """The first and the last one are those of the log, folded or not."""
    times = [incarnation.each()["time_ns"], incarnation.of(Kind.CHUNK_APPLIED)["time_ns"]]
    return np.concatenate(times)
