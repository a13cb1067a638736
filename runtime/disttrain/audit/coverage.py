"""Whether every sample of a finished epoch was processed: the pushes' places in the portions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from disttrain.audit.evidence import Evidence, Incarnation, Records
from disttrain.audit.finding import Finding, judge, not_checkable
from disttrain.coordinator.leases import intervals
from disttrain.coordinator.leases.intervals import Intervals
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

PROMISE = "finished epochs are whole"


class _Lease(NamedTuple):
    """Where a lease lies, and its place among the leases of its incarnation."""

    place: int
    epoch: int
    portion: int
    first: int
    """Position in the portion of the lease's first sample."""
    samples: int
    """0: of an earlier version's log, which does not say."""


class _Part(NamedTuple):
    """Samples [first, end) of a portion, in the order of one epoch."""

    epoch: int
    portion: int
    first: int
    end: int


class _Crossing(Exception):
    """A push that carries samples of more leases than the logs can tell apart."""


def check(evidence: Evidence) -> Finding:
    """Count the epochs of which every sample was pushed, or gave no finite gradient.

    Of a batch method with a warm start, those of the warm start; promise 3 is about the others.
    """
    summary, size = evidence.summary, evidence.train_samples
    if summary is None or not size:
        return not_checkable(PROMISE, "the job has not ended, or never knew its data")
    if summary.resumed_from:
        return not_checkable(PROMISE, "a resumed run does some samples of earlier ones again")
    if evidence.folded:
        return not_checkable(PROMISE, "folded ledgers do not say which samples: see spec.audit")
    try:
        parts = [
            part
            for incarnation in evidence.replica_incarnations
            for part in _parts(evidence, incarnation)
        ]
    except _Crossing:
        return not_checkable(
            PROMISE, "a push carries samples of leases that the logs do not tell apart"
        )
    whole = sum(samples == size for samples in _samples_by_epoch(parts).values())
    said = min(summary.epochs, summary.samples_by_updates // size)
    missing = said > whole
    violations = [f"summary.json says {said} epochs, {whole} are whole"] * missing
    return judge(PROMISE, violations, f"{whole} epochs with each of their {size} samples")


def _samples_by_epoch(parts: Iterable[_Part]) -> Mapping[int, int]:
    portions: dict[tuple[int, int], Intervals] = defaultdict(tuple)
    for part in parts:
        key = (part.epoch, part.portion)
        portions[key] = intervals.union(portions[key], part.first, part.end)
    samples: dict[int, int] = defaultdict(int)
    for (epoch, _), covered in portions.items():
        samples[epoch] += intervals.size(covered)
    return samples


def _parts(evidence: Evidence, replica: Incarnation) -> Iterator[_Part]:
    leases = _leases(replica)
    for record in replica.of(ReplicaKind.NOT_FINITE):
        yield from _placed(leases, int(record["lease"]), int(record["lease_offset"]), record)
    before = 0, 0
    for record in _pushes(evidence, replica.sender):
        lease, offset = int(record["lease"]), int(record["lease_offset"])
        yield from _placed(leases, lease, offset, record)
        rest = int(record["samples"]) - offset
        if rest > 0 and lease:
            yield from _before(leases, before, lease, rest)
        before = lease, offset


def _placed(
    leases: Mapping[int, _Lease], lease: int, offset: int, record: Mapping[str, int]
) -> Iterator[_Part]:
    """Of the lease that the position is in. A loop of its own has none."""
    found = leases.get(lease)
    if found is not None:
        first = max(0, offset - int(record["samples"]))
        yield _Part(found.epoch, found.portion, found.first + first, found.first + offset)


def _before(
    leases: Mapping[int, _Lease], before: tuple[int, int], lease: int, rest: int
) -> Iterator[_Part]:
    """What a push carries of the leases before its own, from the position of the last push on."""
    found, own = leases.get(before[0]), leases.get(lease)
    if own is None or (found is None and before != (0, 0)):
        raise _Crossing
    if found is not None and own.place == found.place + 1:
        first = found.first + before[1]
        yield _Part(found.epoch, found.portion, first, first + rest)
        return
    begun = 0 if found is None else found.place
    parts = [
        _Part(
            each.epoch,
            each.portion,
            each.first + (before[1] if each is found else 0),
            each.first + each.samples,
        )
        for each in leases.values()
        if begun <= each.place < own.place
    ]
    # Where a lease was given up, or a step gave no finite gradient, more was begun than pushed.
    if sum(part.end - part.first for part in parts) != rest:
        raise _Crossing
    yield from parts


def _leases(replica: Incarnation) -> dict[int, _Lease]:
    return {
        int(record["lease"]): _Lease(
            place=place,
            epoch=int(record["epoch"]),
            portion=int(record["portion"]),
            first=int(record["first"]) - int(record["lease_offset"]),
            samples=int(record["number"]),
        )
        for place, record in enumerate(replica.of(ReplicaKind.LEASE_BEGUN))
    }


def _pushes(evidence: Evidence, sender: SenderIncarnation) -> Iterator[Mapping[str, int]]:
    """What any shard has applied of a sender, by sequence; each push once."""
    found: dict[int, Mapping[str, int]] = {}
    for incarnation in evidence.shard_incarnations:
        pushed: Records = incarnation.of(ShardKind.PUSHED)
        mine = (pushed["sender"] == sender.sender) & (pushed["incarnation"] == sender.incarnation)
        for record in pushed[mine]:
            found[int(record["sequence"])] = record
    return (found[sequence] for sequence in sorted(found))
