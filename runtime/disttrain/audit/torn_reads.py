"""Promise 5: no torn reads. A fetch holds every chunk, whole, of one incarnation of each shard."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from disttrain.audit.evidence import Evidence, Incarnation, Records, by_sender
from disttrain.audit.finding import Finding, judge, not_checkable
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

PROMISE = "5. no torn reads"

Given = Mapping[tuple[int, int], Mapping[SenderIncarnation, Records]]
"""By shard and its incarnation, the chunks given to each sender."""


def check(evidence: Evidence) -> Finding:
    """Compare what replicas say they fetched with what the shards say they gave.

    That a chunk is whole in itself follows from the shard's single thread, of which its log is the
    order; `disttrain replay` shows it bit for bit.
    """
    if not evidence.record:
        return not_checkable(PROMISE, "chunks are logged only with spec.record: true")
    given = {
        (incarnation.index, incarnation.incarnation): by_sender(
            _of_vectors(incarnation.of(ShardKind.CHUNK_FETCHED), evidence.fetched_vectors)
        )
        for incarnation in evidence.shard_incarnations
    }
    versions = {
        (incarnation.index, incarnation.incarnation): _versions(incarnation)
        for incarnation in evidence.shard_incarnations
    }
    violations = [
        text
        for incarnation in evidence.replica_incarnations
        for text in (*_incomplete(incarnation, given), *_impossible(incarnation, versions))
    ]
    fetches = sum(
        len(incarnation.of(ReplicaKind.FETCHED)) for incarnation in evidence.replica_incarnations
    )
    chunks = sum(len(records) for senders in given.values() for records in senders.values())
    return judge(PROMISE, violations, f"{fetches} fetches from a shard, {chunks} chunks given out")


def _of_vectors(records: Records, numbers: Iterable[int]) -> Records:
    found: Records = records[np.isin(records["vector"], list(numbers))]
    return found


def _incomplete(replica: Incarnation, given: Given) -> Iterator[str]:
    chunks: dict[tuple[int, int], dict[int, set[int]]] = {}
    for place, senders in given.items():
        if replica.sender in senders:
            chunks[place] = _chunks(senders[replica.sender])
    for record in replica.of(ReplicaKind.FETCHED):
        place = (int(record["shard"]), int(record["shard_incarnation"]))
        missing = chunks.get(place, {}).get(int(record["number"]))
        if missing is None or missing:
            yield (
                f"fetch {record['number']} of {replica.name} lacks "
                f"{'all' if missing is None else sorted(missing)} chunks of shard-{place[0]} "
                f"(incarnation {place[1]})"
            )


def _chunks(records: Records) -> dict[int, set[int]]:
    """By fetch, the chunks of its vector that were not given out but for other fetches."""
    all_chunks = set(records["chunk"].tolist())
    missing: dict[tuple[int, int], set[int]] = {}
    for record in records:
        fetch = int(record["sequence"]), int(record["vector"])
        missing.setdefault(fetch, set(all_chunks)).discard(int(record["chunk"]))
    found: dict[int, set[int]] = defaultdict(set)
    for (sequence, _), chunks in missing.items():
        found[sequence] |= chunks
    return found


def _versions(incarnation: Incarnation) -> set[int]:
    from_start = {int(record["version"]) for record in incarnation.of(ShardKind.RESTORED)} or {0}
    return from_start | {int(record["version"]) for record in incarnation.of(ShardKind.PUSHED)}


def _impossible(
    replica: Incarnation, versions: Mapping[tuple[int, int], set[int]]
) -> Iterator[str]:
    for record in replica.of(ReplicaKind.FETCHED):
        place = (int(record["shard"]), int(record["shard_incarnation"]))
        if int(record["version"]) not in versions.get(place, ()):
            yield (
                f"fetch {record['number']} of {replica.name} is of version {record['version']} of "
                f"shard-{place[0]} (incarnation {place[1]}), which never was"
            )
