"""Promise 8: two incarnations never both write, neither of a replica nor of a shard."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from disttrain.audit.evidence import Evidence, Life
from disttrain.audit.finding import Finding, judge
from disttrain.parameter_server.ledger import Kind

PROMISE = "8. two incarnations never both write"

_WRITES = (Kind.PUSHED, Kind.PUSHES_FOLDED, Kind.CHUNK_APPLIED)


def check(evidence: Evidence) -> Finding:
    """After a newer life was heard of or a life was fenced, nothing of it is applied."""
    violations = [
        *(text for life in evidence.shard_lives for text in _late_writes(life)),
        *_readmitted(evidence),
        *_two_shards(evidence),
    ]
    fenced = sum(len(life.of(Kind.FENCED)) for life in evidence.shard_lives)
    admitted = sum(len(life.of(Kind.ADMITTED)) for life in evidence.shard_lives)
    text = f"{admitted} admissions and {fenced} fences; nothing was applied after its fence"
    return judge(PROMISE, violations, text)


def _late_writes(life: Life) -> Iterator[str]:
    over: dict[int, int] = {}
    for record in life.of(*_WRITES, Kind.FENCED, Kind.ADMITTED):
        sender, incarnation = int(record["sender"]), int(record["incarnation"])
        kind = int(record["kind"])
        if kind == Kind.FENCED:
            over[sender] = max(incarnation, over.get(sender, 0))
            continue
        if kind in _WRITES and incarnation <= over.get(sender, 0):
            yield (
                f"{life.name} applied push {record['sequence']} of replica-{sender} "
                f"(life {incarnation}), which had been fenced"
            )
        over[sender] = max(incarnation - 1, over.get(sender, 0))


def _readmitted(evidence: Evidence) -> Iterator[str]:
    """A rollback must not let in who was fenced by an earlier life of the shard."""
    for lives in evidence.shards.values():
        fenced: dict[int, int] = {}
        for life in lives:
            for record in life.of(*_WRITES):
                sender, incarnation = int(record["sender"]), int(record["incarnation"])
                if incarnation <= fenced.get(sender, 0):
                    yield (
                        f"{life.name} applied push {record['sequence']} of replica-{sender} "
                        f"(life {incarnation}), which an earlier life had fenced"
                    )
            for record in life.of(Kind.FENCED):
                sender = int(record["sender"])
                fenced[sender] = max(int(record["incarnation"]), fenced.get(sender, 0))


def _two_shards(evidence: Evidence) -> Iterator[str]:
    """An earlier life of a shard writes nothing once a later one does."""
    for lives in evidence.shards.values():
        for before, after in pairwise(lives):
            old, new = _write_times(before), _write_times(after)
            if len(old) and len(new) and np.max(old) > np.min(new):
                yield f"{before.name} applied updates after {after.name} had begun to"


def _write_times(life: Life) -> NDArray[np.uint64]:
    """The first and the last one are those of the log, folded or not."""
    times = [life.each()["time_ns"], life.of(Kind.CHUNK_APPLIED)["time_ns"]]
    return np.concatenate(times)
