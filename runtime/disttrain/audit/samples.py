"""The account of the data: what was applied is what the summary says, repeats included."""

from collections.abc import Container, Iterable, Iterator, Sequence

from disttrain.audit.evidence import Evidence, Incarnation, Records, Summary, by_sender
from disttrain.audit.finding import Finding, judge, not_checkable
from disttrain.audit.history import History
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind
from disttrain.transport.header import Reason

PROMISE = "samples are accounted for"

Push = tuple[int, int, int]
"""Sender, its incarnation, and the number of the push."""

Applied = dict[Push, int]
"""Samples of each."""

_ENDED_IN_ORDER = frozenset({"Complete", "Stopped"})


def check(evidence: Evidence, histories: Sequence[History]) -> Finding:
    """Every sample applied on any shard is a new one or a repeated one.

    Updates that a shard's death rolled back stay counted: they were processed, and are reported
    as lost. Those that a resume rolled back are not: the account went back with them.

    An equality, as long as no replica has died: see `_most_open`.
    """
    summary = evidence.summary
    if summary is None:
        return not_checkable(PROMISE, "there is no summary.json: the job has not ended")
    if summary.resumed_from and not evidence.has_trained:
        why = (
            f"the job was resumed from {summary.resumed_from} and ended before all shards had told "
            "what they hold beyond it"
        )
        return not_checkable(PROMISE, why)
    if any(len(incarnation.folded) for incarnation in evidence.shard_incarnations):
        return _check_sums(evidence, summary, histories)
    back, dead = _gone_back(evidence), _dead(evidence)
    all_applied = _applied(evidence, histories)
    applied = {push: samples for push, samples in all_applied.items() if push not in back}
    skipped = sum(_skipped(incarnation) for incarnation in evidence.replica_incarnations)
    processed = sum(applied.values()) + skipped
    again = back if evidence.last_run else _of(dead, back)
    returned = sum(all_applied.get(push, 0) for push in again)
    most_open = _most_open(evidence, histories, applied, dead)
    violations = [
        *_wrong_account(evidence, summary, (processed, processed + returned), most_open),
        *_wrong_epochs(evidence, summary),
    ]
    text = (
        f"{processed - skipped} samples applied, {skipped} gave no finite gradient; "
        f"{summary.samples_by_updates} processed and {summary.samples_repeated} repeated"
    )
    return judge(PROMISE, violations, text)


def _check_sums(evidence: Evidence, summary: Summary, histories: Sequence[History]) -> Finding:
    """Folded ledgers hold sums, so shard by shard: each has applied everything, if nobody died."""
    if (why := _why_not_by_sums(evidence, summary)) is not None:
        return not_checkable(PROMISE, f"{why}, and folded ledgers hold sums: see spec.audit")
    skipped = sum(_skipped(incarnation) for incarnation in evidence.replica_incarnations)
    back = _gone_back(evidence)
    held = {
        history.shard: sum(_applied(evidence, [history]).values()) + skipped
        for history in histories
    }
    processed = {
        shard: samples - sum(count for count, refused in back.values() if shard not in refused)
        for shard, samples in held.items()
    }
    violations = [
        *(
            f"shard-{shard}: {text}"
            for shard, samples in processed.items()
            for text in _wrong_account(
                evidence, summary, (samples, held[shard] if evidence.last_run else samples), 0
            )
        ),
        *_wrong_epochs(evidence, summary),
    ]
    text = (
        f"{max(processed.values(), default=0)} samples on each of {len(processed)} shards; "
        f"{summary.samples_by_updates} processed and {summary.samples_repeated} repeated"
    )
    return judge(PROMISE, violations, text)


def _why_not_by_sums(evidence: Evidence, summary: Summary) -> str | None:
    if summary.phase not in _ENDED_IN_ORDER:
        return "the job failed"
    if not _dead(evidence):
        return None
    return "the run was resumed" if evidence.last_run else "a replica died"


def _most_open(
    evidence: Evidence,
    histories: Sequence[History],
    applied: Applied,
    dead: Container[tuple[int, ...]],
) -> int | None:
    """How many processed samples the summary may leave out; None: the job did not end in order.

    What of a dead replica's work counts, the shards say when they fence it. What only some of them
    had applied is to be done again, and is in the account when it was. A shard that was rolled
    back says less than it had applied; how much less mattered depends on what the replica had
    told the coordinator before it died, which is in no log. So of the dead, what was lost, and what
    gave no finite gradient, may be left out. Of everybody else nothing may.
    """
    summary = evidence.summary
    if summary is None or summary.phase not in _ENDED_IN_ORDER:
        return None
    undone = {push for history in histories for push in _undone(history, by_resume=False)}
    lost = _of(dead, undone)
    skipped = sum(
        _skipped(incarnation)
        for incarnation in evidence.replica_incarnations
        if incarnation.sender in dead
    )
    open_samples = sum(applied.get(push, 0) for push in lost)
    return summary.samples_partially_applied + open_samples + skipped


def _undone(history: History, *, by_resume: bool) -> set[Push]:
    """What resumes, or deaths of the shard, took back for good. A resume's are in no account."""
    dropped = {
        push
        for rollback in history.rollbacks
        if rollback.is_resume == by_resume
        for records in rollback.dropped.values()
        for push in _samples(records)
    }
    return dropped - set(_samples(history.surviving))


def _dead(evidence: Evidence) -> set[SenderIncarnation]:
    """Incarnations of replicas that were fenced, replaced, or of a run that was resumed."""
    fences = [incarnation.of(ShardKind.FENCED) for incarnation in evidence.shard_incarnations]
    fenced = {sender for records in fences for sender in by_sender(records)}
    replaced = {
        incarnation.sender
        for incarnations in evidence.replicas.values()
        for incarnation in incarnations[:-1]
    }
    incarnations = evidence.replica_incarnations
    earlier = {
        incarnation.sender for incarnation in incarnations if incarnation.run < evidence.last_run
    }
    return fenced | replaced | earlier


def _of(senders: Container[tuple[int, ...]], pushes: Iterable[Push]) -> set[Push]:
    return {push for push in pushes if push[:2] in senders}


def _skipped(replica: Incarnation) -> int:
    return int(replica.of(ReplicaKind.NOT_FINITE)["samples"].sum())


def _applied(evidence: Evidence, histories: Sequence[History]) -> Applied:
    found: Applied = {}
    for history in histories:
        gone = _undone(history, by_resume=True)
        for incarnation in evidence.shards[history.shard]:
            pushes = _samples(incarnation.each()).items()
            found.update({key: count for key, count in pushes if key not in gone})
    return found


def _gone_back(evidence: Evidence) -> dict[Push, tuple[int, set[int]]]:
    """Pushes that a shard refused as too old, and those held back after them.

    Their samples, and all shards that did not get or take them. The samples went back and count
    when they are pushed again, whatever other shards have applied.
    """
    found: dict[Push, tuple[int, set[int]]] = {}
    for replica in evidence.replica_incarnations:
        for record in replica.of(ReplicaKind.HELD_BACK):
            push = (*replica.sender, int(record["number"]))
            _, shards = found.setdefault(push, (int(record["samples"]), set()))
            shards.add(int(record["shard"]))
    for incarnation in evidence.shard_incarnations:
        for record in incarnation.of(ShardKind.REFUSED):
            if record["reason"] == Reason.TOO_STALE:
                push = (int(record["sender"]), int(record["incarnation"]), int(record["sequence"]))
                _, shards = found.setdefault(push, (int(record["samples"]), set()))
                shards.add(incarnation.index)
    return found


def _samples(records: Records) -> Applied:
    columns = ("sender", "incarnation", "sequence")
    keys = zip(*(records[column].tolist() for column in columns), strict=True)
    return dict(zip(keys, records["samples"].tolist(), strict=True))


def _wrong_account(
    evidence: Evidence, summary: Summary, logged: tuple[int, int], most_open: int | None
) -> Iterator[str]:
    """Who repeated samples, a warm start or the batch method that followed, is in no summary.

    `logged`: without and with what single shards had applied of pushes that went back. It counts as
    repeated where the replica died before it could say so, and in a resumed run, as far as shards
    came back with it.
    """
    processed, with_returned = logged
    most = summary.samples_by_updates + summary.samples_repeated
    least = summary.samples_by_updates if evidence.warm_start else most
    if least > with_returned:
        yield f"summary.json accounts for {least} samples, the logs for {with_returned}"
    if most_open is not None and processed > most + most_open:
        yield (
            f"summary.json accounts for {most} samples, the logs for {processed}, of which at most "
            f"{most_open} may have been left out"
        )


def _wrong_epochs(evidence: Evidence, summary: Summary) -> Iterator[str]:
    size = evidence.train_samples
    if size and summary.samples < summary.epochs * size:
        yield (
            f"summary.json says {summary.epochs} epochs of {size} samples, but only "
            f"{summary.samples} samples"
        )
