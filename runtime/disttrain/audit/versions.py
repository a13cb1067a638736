"""Promise 4: versions never go back for a living client; a rollback is a new incarnation."""

from collections.abc import Iterator

import numpy as np

from disttrain.audit import history
from disttrain.audit.evidence import Evidence, Incarnation, Records, by_sender, name_of
from disttrain.audit.finding import Finding, judge
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

PROMISE = "4. versions never go back"


def check(evidence: Evidence) -> Finding:
    """On the shards one version per update, for the clients never an older one."""
    violations = [
        *(text for incarnation in evidence.shard_incarnations for text in _shard(incarnation)),
        *(
            text
            for incarnation in evidence.shard_incarnations
            for text in _computed_on(incarnation)
        ),
        *(text for incarnation in evidence.replica_incarnations for text in _client(incarnation)),
    ]
    shards = sum(1 for incarnations in evidence.shards.values() if incarnations)
    incarnations = sum(len(incarnations) for incarnations in evidence.shards.values())
    answers = sum(len(incarnation.each()) for incarnation in evidence.replica_incarnations)
    text = f"{incarnations} incarnations of {shards} shards, {answers} versions seen by clients"
    return judge(PROMISE, violations, text + _folded(evidence))


def _folded(evidence: Evidence) -> str:
    """What is not checked of updates whose records are sums."""
    updates = sum(
        int((incarnation.folded["sequence"] - incarnation.folded["first"] + 1).sum())
        for incarnation in evidence.shard_incarnations
    )
    return (
        f"; of {updates} folded updates it is not checked on which versions they were computed "
        "(spec.audit: full keeps that)"
        if updates
        else ""
    )


def _shard(incarnation: Incarnation) -> Iterator[str]:
    """One more with every update, from the restored version on."""
    # Where folding met a break of the order, it left the record as it was: below the folded ones.
    version = max(
        history.first_version(incarnation), int(np.max(incarnation.folded["version"], initial=0))
    )
    for record in incarnation.of(ShardKind.PUSHED):
        if record["version"] != version + 1:
            yield f"{incarnation.name} went from version {version} to {record['version']}"
        version = int(record["version"])


def _computed_on(incarnation: Incarnation) -> Iterator[str]:
    """Gradients are of ever newer versions, and staleness is what lies between."""
    for sender, records in by_sender(incarnation.of(ShardKind.PUSHED)).items():
        who = f"{incarnation.name}: {name_of(sender)}"
        for before, after in _steps_back(records, "read_incarnation", "read_version"):
            yield f"{who} computed on version {after} after {before}"
    for record in incarnation.of(ShardKind.PUSHED):
        if record["staleness"] != _staleness(record):
            yield (
                f"{incarnation.name}: push {record['sequence']} of replica-{record['sender']} has "
                f"staleness {record['staleness']}, its versions say {_staleness(record)}"
            )


def _staleness(record: np.void) -> int:
    if record["read_incarnation"] != record["shard_incarnation"]:
        return -1
    return max(0, int(record["version"]) - 1 - int(record["read_version"]))


def _client(incarnation: Incarnation) -> Iterator[str]:
    for records in (incarnation.each(), incarnation.of(ReplicaKind.FETCHED)):
        for shard in np.unique(records["shard"]):
            mine = records[records["shard"] == shard]
            for before, after in _steps_back(mine, "shard_incarnation", "version"):
                yield f"{incarnation.name} saw version {after} of shard-{shard} after {before}"


def _steps_back(records: Records, incarnation: str, version: str) -> Iterator[tuple[str, str]]:
    """Where the pair of columns decreases from one record to the next."""
    incarnations, counts = (records[name].astype(np.int64) for name in (incarnation, version))
    older = np.diff(incarnations) < 0
    fewer = (np.diff(incarnations) == 0) & (np.diff(counts) < 0)
    for place in np.flatnonzero(older | fewer):
        yield (
            f"{counts[place]} (incarnation {incarnations[place]})",
            f"{counts[place + 1]} (incarnation {incarnations[place + 1]})",
        )
