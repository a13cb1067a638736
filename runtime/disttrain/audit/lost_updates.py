"""Promise 1: no acknowledged update is lost but those since a checkpoint, which are counted."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from disttrain.audit.evidence import Evidence, Life, by_sender, sequences
from disttrain.audit.finding import Finding, judge
from disttrain.audit.history import History, Rollback
from disttrain.job import names
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

PROMISE = "1. acknowledged updates are kept, or counted as lost"

Held = Mapping[int, Mapping[SenderLife, set[int]]]
"""Numbers of pushes by shard and sender."""


def check(evidence: Evidence, histories: Sequence[History]) -> Finding:
    """Acknowledged minus surviving must be what the shards and the summary say is lost."""
    applied = {shard: _applied(lives) for shard, lives in evidence.shards.items()}
    surviving = {history.shard: _numbers(history) for history in histories}
    violations = [
        *_wrong_reports(histories),
        *_wrong_summary(evidence, histories),
        *(text for life in evidence.replica_lives for text in _unheld(life, applied)),
        *(text for life in evidence.replica_lives for text in _gaps(life, applied)),
        *_unreported(evidence, surviving, histories),
    ]
    acknowledged = sum(len(life.of(ReplicaKind.ACKNOWLEDGED)) for life in evidence.replica_lives)
    lost = sum(sum(_reported(history.rollbacks).values()) for history in histories)
    held = sum(len(history.surviving) for history in histories)
    text = f"{acknowledged} acknowledgements, {held} updates in the values, {lost} reported lost"
    return judge(PROMISE, violations, text)


def _applied(lives: Sequence[Life]) -> dict[SenderLife, set[int]]:
    found: dict[SenderLife, set[int]] = {}
    for life in lives:
        for sender, records in by_sender(life.of(ShardKind.PUSHED)).items():
            found.setdefault(sender, set()).update(sequences(records))
    return found


def _numbers(history: History) -> dict[SenderLife, set[int]]:
    return {life: sequences(records) for life, records in by_sender(history.surviving).items()}


def _reported(rollbacks: Sequence[Rollback]) -> Counter[SenderLife]:
    found: Counter[SenderLife] = Counter()
    for rollback in rollbacks:
        found.update(rollback.reported)
    return found


def _wrong_reports(histories: Sequence[History]) -> Iterator[str]:
    """What a new life says is lost must be what the log of the life before holds beyond it.

    One more per sender is right, too: it was stored as acknowledged, and kill -9 came before it was
    logged and answered.
    """
    for history in histories:
        for rollback in history.rollbacks:
            for sender in sorted({*rollback.dropped, *rollback.reported}):
                dropped = len(rollback.dropped.get(sender, ()))
                reported = rollback.reported.get(sender, 0)
                if not dropped <= reported <= dropped + 1:
                    yield (
                        f"{rollback.life.name} reports {reported} lost updates of {_name(sender)}, "
                        f"the log before it holds {dropped} beyond version {rollback.version}"
                    )


def _wrong_summary(evidence: Evidence, histories: Sequence[History]) -> Iterator[str]:
    summary = evidence.summary
    if summary is None:
        return
    latest, earlier = Counter[str](), Counter[str]()
    for history in histories:
        for rollback in history.rollbacks:
            counter = latest if rollback.life.run == evidence.last_run else earlier
            for sender, lost in rollback.reported.items():
                counter[names.replica_name(sender.sender)] += lost
    for name in sorted({*latest, *earlier, *summary.updates_lost_by_sender}):
        said, least = summary.updates_lost_by_sender.get(name, 0), latest[name]
        # A resumed run continues from a checkpoint's account, which may be older than some losses.
        if not least <= said <= least + earlier[name]:
            yield f"summary.json says {said} updates of {name} were lost, the shards say {least}"
    total = sum(summary.updates_lost_by_sender.values())
    if summary.updates_lost != total:
        yield f"summary.json says {summary.updates_lost} updates were lost, by sender {total}"


def _unheld(replica: Life, applied: Held) -> Iterator[str]:
    """An acknowledgement without the update."""
    sender = SenderLife(replica.index, replica.incarnation)
    for record in replica.of(ReplicaKind.ACKNOWLEDGED):
        shard, number = int(record["shard"]), int(record["number"])
        if number not in applied.get(shard, {}).get(sender, ()):
            yield f"shard-{shard} acknowledged push {number} of {replica.name}, but never logged it"


def _gaps(replica: Life, applied: Held) -> Iterator[str]:
    """A push begins when all shards have answered the one before."""
    sender = SenderLife(replica.index, replica.incarnation)
    refused = sequences(replica.of(ReplicaKind.REFUSED), "number")
    acknowledged = replica.of(ReplicaKind.ACKNOWLEDGED)
    everywhere: set[int] = set()
    for shard in applied:
        everywhere |= applied[shard].get(sender, set())
    before = set(range(1, max(everywhere, default=0))) - refused
    for shard in sorted(applied):
        mine = sequences(acknowledged[acknowledged["shard"] == shard], "number")
        for number in sorted(before - mine):
            yield f"{replica.name} has no answer of shard-{shard} to push {number}, but went on"


def _unreported(evidence: Evidence, surviving: Held, histories: Sequence[History]) -> Iterator[str]:
    """Every acknowledged update that is not in the values must be among those reported."""
    for history in histories:
        reported = _reported(history.rollbacks)
        for replica in evidence.replica_lives:
            sender = SenderLife(replica.index, replica.incarnation)
            answers = replica.of(ReplicaKind.ACKNOWLEDGED)
            mine = sequences(answers[answers["shard"] == history.shard], "number")
            missing = len(mine - surviving[history.shard].get(sender, set()))
            if missing > reported[sender]:
                yield (
                    f"{missing} acknowledged updates of {replica.name} are not in the values of "
                    f"shard-{history.shard}, {reported[sender]} were reported"
                )


def _name(sender: SenderLife) -> str:
    return f"{names.replica_name(sender.sender)} (life {sender.incarnation})"
