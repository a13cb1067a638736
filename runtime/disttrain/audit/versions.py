"""Promise 4: versions never go back for a living client; a rollback is a new incarnation."""

from collections.abc import Iterator

import numpy as np

from disttrain.audit import history
from disttrain.audit.evidence import Evidence, Life, Records, by_sender, name_of
from disttrain.audit.finding import Finding, judge
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

PROMISE = "4. versions never go back"


def check(evidence: Evidence) -> Finding:
    """On the shards one version per update, for the clients never an older one."""
    violations = [
        *(text for life in evidence.shard_lives for text in _shard(life)),
        *(text for life in evidence.shard_lives for text in _computed_on(life)),
        *(text for life in evidence.replica_lives for text in _client(life)),
    ]
    shards = sum(1 for lives in evidence.shards.values() if lives)
    lives = sum(len(lives) for lives in evidence.shards.values())
    answers = sum(len(life.each()) for life in evidence.replica_lives)
    text = f"{lives} lives of {shards} shards, {answers} versions seen by clients"
    return judge(PROMISE, violations, text + _folded(evidence))


def _folded(evidence: Evidence) -> str:
    """What is not checked of updates whose records are sums."""
    updates = sum(
        int((life.folded["sequence"] - life.folded["first"] + 1).sum())
        for life in evidence.shard_lives
    )
    return (
        f"; of {updates} folded updates it is not checked on which versions they were computed "
        "(spec.audit: full keeps that)"
        if updates
        else ""
    )


def _shard(life: Life) -> Iterator[str]:
    """One more with every update, from the restored version on."""
    # Where folding met a break of the order, it left the record as it was: below the folded ones.
    version = max(history.first_version(life), int(np.max(life.folded["version"], initial=0)))
    for record in life.of(ShardKind.PUSHED):
        if record["version"] != version + 1:
            yield f"{life.name} went from version {version} to {record['version']}"
        version = int(record["version"])


def _computed_on(life: Life) -> Iterator[str]:
    """Gradients are of ever newer versions, and staleness is what lies between."""
    for sender, records in by_sender(life.of(ShardKind.PUSHED)).items():
        who = f"{life.name}: {name_of(sender)}"
        for before, after in _steps_back(records, "read_incarnation", "read_version"):
            yield f"{who} computed on version {after} after {before}"
    for record in life.of(ShardKind.PUSHED):
        if record["staleness"] != _staleness(record):
            yield (
                f"{life.name}: push {record['sequence']} of replica-{record['sender']} has "
                f"staleness {record['staleness']}, its versions say {_staleness(record)}"
            )


def _staleness(record: np.void) -> int:
    if record["read_incarnation"] != record["shard_incarnation"]:
        return -1
    return max(0, int(record["version"]) - 1 - int(record["read_version"]))


def _client(life: Life) -> Iterator[str]:
    for records in (life.each(), life.of(ReplicaKind.FETCHED)):
        for shard in np.unique(records["shard"]):
            mine = records[records["shard"] == shard]
            for before, after in _steps_back(mine, "shard_incarnation", "version"):
                yield f"{life.name} saw version {after} of shard-{shard} after {before}"


def _steps_back(records: Records, incarnation: str, version: str) -> Iterator[tuple[str, str]]:
    """Where the pair of columns decreases from one record to the next."""
    lives, counts = (records[name].astype(np.int64) for name in (incarnation, version))
    older = np.diff(lives) < 0
    fewer = (np.diff(lives) == 0) & (np.diff(counts) < 0)
    for place in np.flatnonzero(older | fewer):
        yield (
            f"{counts[place]} (life {lives[place]})",
            f"{counts[place + 1]} (life {lives[place + 1]})",
        )
