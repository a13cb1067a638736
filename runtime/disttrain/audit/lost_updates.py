"""Promise 1: no acknowledged update is lost but those since a checkpoint, which are counted."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from disttrain.audit.evidence import Evidence, Incarnation, Summary, by_sender, name_of, sequences
from disttrain.audit.finding import Finding, judge
from disttrain.audit.history import NO_CLAIM, History
from disttrain.job import names
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.replica.ledger import Kind as ReplicaKind

PROMISE = "1. acknowledged updates are kept, or counted as lost"

Held = Mapping[int, Mapping[SenderIncarnation, set[int]]]
"""Numbers of pushes by shard and sender."""


def check(evidence: Evidence, histories: Sequence[History]) -> Finding:
    """Acknowledged minus surviving must be what the shards and the summary say is lost."""
    applied = {shard: _applied(incarnations) for shard, incarnations in evidence.shards.items()}
    surviving = {history.shard: _numbers(history) for history in histories}
    is_exact = evidence.summary is None or evidence.summary.updates_lost_is_exact
    violations = [
        *_wrong_reports(histories, is_exact=is_exact),
        *_wrong_summary(evidence, histories),
        *(
            text
            for incarnation in evidence.replica_incarnations
            for text in _unheld(incarnation, applied)
        ),
        *(
            text
            for incarnation in evidence.replica_incarnations
            for text in _gaps(incarnation, evidence, applied)
        ),
        *_unreported(evidence, surviving, histories),
    ]
    acknowledged = sum(len(incarnation.each()) for incarnation in evidence.replica_incarnations)
    told = [history for history in histories if not history.is_taken_over]
    lost = sum(len(numbers) for history in told for numbers in history.lost.values())
    held = sum(len(history.surviving) for history in histories)
    text = f"{acknowledged} acknowledgements, {held} updates in the values, {lost} lost"
    return judge(PROMISE, violations, text)


def _applied(incarnations: Sequence[Incarnation]) -> dict[SenderIncarnation, set[int]]:
    found: dict[SenderIncarnation, set[int]] = {}
    for incarnation in incarnations:
        for sender, records in by_sender(incarnation.each()).items():
            found.setdefault(sender, set()).update(sequences(records))
    return found


def _numbers(history: History) -> dict[SenderIncarnation, set[int]]:
    return {
        incarnation: sequences(records)
        for incarnation, records in by_sender(history.surviving).items()
    }


def _wrong_reports(histories: Sequence[History], *, is_exact: bool) -> Iterator[str]:
    """What an incarnation says is lost must be what the logs of those before hold beyond it.

    Where a machine may have taken counts with it, it may be less.
    """
    for history in histories:
        for rollback in history.rollbacks:
            for sender in sorted({*rollback.lost, *rollback.claims}):
                found = rollback.lost.get(sender, 0)
                claim = rollback.claims.get(sender, NO_CLAIM)
                # An incarnation that was killed as it began may not have come to this sender.
                is_said = rollback.is_settled or sender in rollback.claims
                if is_said and (claim.lost > found or (is_exact and claim.lost < found)):
                    yield (
                        f"{rollback.incarnation.name} reports {claim.lost} lost updates of "
                        f"{name_of(sender)}, the logs before it hold {found} beyond version "
                        f"{rollback.version}"
                    )


def _wrong_summary(evidence: Evidence, histories: Sequence[History]) -> Iterator[str]:
    summary = evidence.summary
    if summary is None:
        return
    least, most = _lost_by_replica(evidence, histories)
    for name in sorted({*most, *summary.updates_lost_by_sender}):
        said = summary.updates_lost_by_sender.get(name, 0)
        if not _is_possible(summary, said, least[name], most[name]):
            yield f"summary.json says {said} updates of {name} were lost, the logs say {most[name]}"
    total = sum(summary.updates_lost_by_sender.values())
    if summary.updates_lost != total:
        yield f"summary.json says {summary.updates_lost} updates were lost, by sender {total}"


def _lost_by_replica(
    evidence: Evidence, histories: Sequence[History]
) -> tuple[Counter[str], Counter[str]]:
    """At least and at most: a shard that did not come back could not tell its last losses."""
    least, most = Counter[str](), Counter[str]()
    for history in [history for history in histories if not history.is_taken_over]:
        is_there = evidence.shards[history.shard][-1].run == evidence.last_run
        for sender, numbers in history.lost.items():
            name = names.replica_name(sender.sender)
            most[name] += len(numbers)
            least[name] += len(numbers) * is_there
    return least, most


def _is_possible(summary: Summary, said: int, least: int, most: int) -> bool:
    """Exact when the job came to its end.

    One that failed may have heard of losses, or of corrections, that were not logged, or the
    other way; one that was resumed and stopped at once knows only of those in its checkpoint.
    """
    if not summary.updates_lost_is_exact:
        return said <= most
    if summary.phase == "Complete" or (summary.phase == "Stopped" and not summary.resumed_from):
        return least <= said <= most
    return True


def _unheld(replica: Incarnation, applied: Held) -> Iterator[str]:
    """An acknowledgement without the update."""
    for record in replica.each():
        shard, number = int(record["shard"]), int(record["number"])
        if number not in applied.get(shard, {}).get(replica.sender, ()):
            yield f"shard-{shard} acknowledged push {number} of {replica.name}, but never logged it"


def _gaps(replica: Incarnation, evidence: Evidence, applied: Held) -> Iterator[str]:
    """A push begins when all shards of its process have answered the one before."""
    refused = sequences(replica.of(ReplicaKind.REFUSED), "number")
    acknowledged = replica.each()
    there = frozenset(
        incarnation.index
        for incarnation in evidence.shard_incarnations
        if incarnation.run == replica.run
    )
    held = {shard: applied.get(shard, {}).get(replica.sender, set()) for shard in there}
    answered = {
        shard: sequences(acknowledged[acknowledged["shard"] == shard], "number") for shard in there
    }
    back = replica.of(ReplicaKind.HELD_BACK)
    apart = [shards & there for shards in replica.shards if shards] or [there]
    latest = {shards: _latest(held, shards) for shards in apart}
    if evidence.is_running:
        # What shards hold beyond this may have come when the replica's log was read already.
        latest = {shards: min(last, _latest(answered, shards)) for shards, last in latest.items()}
    # Of one that has answered nobody it is not known whose it is.
    silent = there.difference(*apart)
    for shards, last in [*latest.items(), (silent, min(latest.values()))]:
        before = set(range(1, last)) - refused
        for shard in sorted(shards):
            held_back = sequences(back[back["shard"] == shard], "number")
            for number in sorted(before - answered[shard] - held_back):
                yield f"{replica.name} has no answer of shard-{shard} to push {number}, but went on"


def _latest(numbers: Mapping[int, set[int]], shards: frozenset[int]) -> int:
    """The largest number at any of these shards; 0: none."""
    return max((max(numbers[shard], default=0) for shard in shards), default=0)


def _unreported(evidence: Evidence, surviving: Held, histories: Sequence[History]) -> Iterator[str]:
    """Every acknowledged update that is not in the values must be among those lost."""
    for history in histories:
        for replica in evidence.replica_incarnations:
            answers = replica.each()
            mine = sequences(answers[answers["shard"] == history.shard], "number")
            missing = len(mine - surviving[history.shard].get(replica.sender, set()))
            lost = len(history.lost.get(replica.sender, ()))
            if missing > lost:
                yield (
                    f"{missing} acknowledged updates of {replica.name} are not in the values of "
                    f"shard-{history.shard}, {lost} are known to be lost"
                )
