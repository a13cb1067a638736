"""Promise 6: nothing wrong silently. What is corrupt or not finite is refused and counted."""

from collections.abc import Iterator

import numpy as np

from disttrain.audit.evidence import Evidence
from disttrain.audit.finding import Finding, judge
from disttrain.job import names
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

PROMISE = "6. nothing wrong silently"


def check(evidence: Evidence) -> Finding:
    """Files are whole, values are finite, and every refusal has a reason and is counted."""
    violations = [
        *_damaged_checkpoints(evidence),
        *_nameless(evidence),
        *_unmatched(evidence),
        *_not_finite(evidence),
    ]
    refused = sum(
        len(incarnation.of(ShardKind.REFUSED)) for incarnation in evidence.shard_incarnations
    )
    bad = sum(_not_finite_by_replica(evidence).values())
    text = (
        f"{bad} gradients were not finite, {refused} updates refused, "
        f"{len(evidence.checkpoints)} checkpoints verified by hash"
    )
    return judge(PROMISE, violations, text)


def _damaged_checkpoints(evidence: Evidence) -> Iterator[str]:
    for checkpoint in evidence.checkpoints:
        if checkpoint.damage:
            yield f"checkpoint {checkpoint.number}: {checkpoint.damage}"
        for vector in checkpoint.not_finite:
            yield f"checkpoint {checkpoint.number}: {vector} holds values that are not finite"


def _nameless(evidence: Evidence) -> Iterator[str]:
    for incarnation in evidence.shard_incarnations:
        for record in incarnation.of(ShardKind.REFUSED):
            if not record["reason"]:
                yield f"{incarnation.name} refused push {record['sequence']} without a reason"


def _unmatched(evidence: Evidence) -> Iterator[str]:
    """A replica that was refused must have been refused by some shard."""
    refused = {
        (int(record["sender"]), int(record["incarnation"]), int(record["sequence"]))
        for incarnation in evidence.shard_incarnations
        for record in incarnation.of(ShardKind.REFUSED)
    }
    for incarnation in evidence.replica_incarnations:
        for record in incarnation.of(ReplicaKind.REFUSED):
            if (incarnation.index, incarnation.incarnation, int(record["number"])) not in refused:
                push = f"push {record['number']} of {incarnation.name}"
                yield f"{push} was refused, but no shard logged it"


def _not_finite(evidence: Evidence) -> Iterator[str]:
    """An incarnation that was killed may have counted more than it could report."""
    summary = evidence.summary
    if summary is None or summary.resumed_from:
        return
    logged, said = _not_finite_by_replica(evidence), summary.non_finite_gradients_by_replica
    exact = summary.phase == "Complete" and not summary.restarts.get("replica")
    for name in sorted({*logged, *said}):
        found, told = logged.get(name, 0), said.get(name, 0)
        if told > found or (exact and told != found):
            yield f"summary.json says {told} gradients of {name} were not finite, it logged {found}"
    if summary.non_finite_gradients != sum(said.values()):
        yield (
            f"summary.json says {summary.non_finite_gradients} gradients were not finite, "
            f"by replica {sum(said.values())}"
        )


def _not_finite_by_replica(evidence: Evidence) -> dict[str, int]:
    """Steps: one that spoils its whole push is recorded for each step in that."""
    counts = {
        names.replica_name(index): sum(
            len(np.unique(incarnation.of(ReplicaKind.NOT_FINITE)["number"]))
            for incarnation in incarnations
        )
        for index, incarnations in evidence.replicas.items()
    }
    return {name: count for name, count in counts.items() if count}
