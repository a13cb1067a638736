"""The account of the data: what was applied is what the summary says, repeats included."""

from collections.abc import Iterator, Sequence

from disttrain.audit.evidence import Evidence, Records, Summary
from disttrain.audit.finding import Finding, judge, not_checkable
from disttrain.audit.history import History
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

PROMISE = "samples are accounted for"

_ENDED_IN_ORDER = frozenset({"Complete", "Stopped"})


def check(evidence: Evidence, histories: Sequence[History]) -> Finding:
    """Every sample applied on any shard is a new one or a repeated one.

    Updates that a shard's death rolled back stay counted: they were processed, and are reported
    as lost. Those that a resume rolled back are not: the account went back with them.
    """
    summary = evidence.summary
    if summary is None:
        return not_checkable(PROMISE, "there is no summary.json: the job has not ended")
    applied = sum(_applied(evidence, histories).values())
    skipped = sum(
        int(record["samples"])
        for life in evidence.replica_lives
        for record in life.of(ReplicaKind.NOT_FINITE)
    )
    violations = [
        *_wrong_account(summary, applied, skipped, exact=_is_exact(summary, histories)),
        *_wrong_epochs(evidence, summary),
    ]
    text = (
        f"{applied} samples applied, {skipped} gave no finite gradient; {summary.samples} "
        f"processed and {summary.samples_repeated} repeated"
    )
    return judge(PROMISE, violations, text)


def _applied(evidence: Evidence, histories: Sequence[History]) -> dict[tuple[int, int, int], int]:
    """Samples of every push that at least one shard has applied."""
    found: dict[tuple[int, int, int], int] = {}
    for history in histories:
        undone = [
            records
            for rollback in history.rollbacks
            if rollback.is_resume
            for records in rollback.dropped.values()
        ]
        gone = {key for records in undone for key in _samples(records)}
        gone -= set(_samples(history.surviving))
        for life in evidence.shards[history.shard]:
            pushes = _samples(life.of(ShardKind.PUSHED)).items()
            found.update({key: count for key, count in pushes if key not in gone})
    return found


def _samples(records: Records) -> dict[tuple[int, int, int], int]:
    columns = ("sender", "incarnation", "sequence")
    keys = zip(*(records[column].tolist() for column in columns), strict=True)
    return dict(zip(keys, records["samples"].tolist(), strict=True))


def _is_exact(summary: Summary, histories: Sequence[History]) -> bool:
    """A shard that restarted may answer for a dead replica from a checkpoint, which holds less."""
    rolled_back = any(not r.is_resume for history in histories for r in history.rollbacks)
    return summary.phase in _ENDED_IN_ORDER and not rolled_back


def _wrong_account(summary: Summary, applied: int, skipped: int, *, exact: bool) -> Iterator[str]:
    said = summary.samples + summary.samples_repeated
    if said > applied + skipped:
        yield (
            f"summary.json says {summary.samples} samples and {summary.samples_repeated} repeated "
            f"ones, but only {applied} were applied and {skipped} gave no finite gradient"
        )
    if exact and applied > said + summary.samples_partially_applied:
        yield f"{applied} samples were applied, summary.json accounts for {said}"


def _wrong_epochs(evidence: Evidence, summary: Summary) -> Iterator[str]:
    size = evidence.train_samples
    if size and summary.samples < summary.epochs * size:
        yield (
            f"summary.json says {summary.epochs} epochs of {size} samples, but only "
            f"{summary.samples} samples"
        )
