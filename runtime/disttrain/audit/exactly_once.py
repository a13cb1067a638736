"""Promise 3: Sandblaster counts every portion of a batch once, on every shard."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from disttrain.audit.evidence import Evidence, Incarnation
from disttrain.audit.finding import Finding, judge
from disttrain.parameter_server.ledger import Kind

PROMISE = "3. every portion counts exactly once per batch (Sandblaster)"

_COLUMNS = ("sequence", "lease_offset", "lease", "samples")


class _Commit(NamedTuple):
    """What one incarnation of a shard added up for one evaluation."""

    incarnation: Incarnation
    attempts: tuple[tuple[int, int], ...]
    """Group and attempt, in their order."""
    samples: int
    is_last: bool
    """Of its incarnation, which may have ended while it was written down."""


def check(evidence: Evidence) -> Finding:
    """One attempt of each group, the same ones on all shards, and all samples of the batch."""
    # By run, too: one that was resumed uses numbers again, if it began before them.
    commits: dict[tuple[int, int], list[_Commit]] = defaultdict(list)
    for incarnation in evidence.shard_incarnations:
        for number, commit in _commits(incarnation):
            commits[incarnation.run, number].append(commit)
    violations = [
        text for (_, one), found in commits.items() for text in _wrong(one, found, evidence)
    ]
    violations += _wrong_folds(evidence)
    groups = max((len(found[0].attempts) for found in commits.values()), default=0)
    text = f"{len(commits)} evaluations of {groups} groups on {len(evidence.shards)} shards"
    text += _folded(evidence)
    return judge(PROMISE, violations, text)


def _folded(evidence: Evidence) -> str:
    folds = [incarnation.of(Kind.COMMITS_FOLDED) for incarnation in evidence.shard_incarnations]
    count = max((int(records["chunks"].sum()) for records in folds), default=0)
    return (
        f"; {count} more are folded, compared as a whole, where shards folded the same ones "
        "(spec.audit: full keeps each)"
        if count
        else ""
    )


def _wrong_folds(evidence: Evidence) -> Iterator[str]:
    """The same evaluations have the same attempts on all shards, and all samples."""
    known: dict[tuple[int, ...], tuple[Incarnation, int]] = {}
    size = evidence.train_samples
    for incarnation in evidence.shard_incarnations:
        for fold in incarnation.of(Kind.COMMITS_FOLDED):
            span = f"{incarnation.name} in evaluations {fold['first']} to {fold['sequence']}"
            key = (incarnation.run, *(int(fold[name]) for name in ("first", "sequence", "chunks")))
            other, crc = known.setdefault(key, (incarnation, int(fold["lease"])))
            if crc != fold["lease"]:
                yield f"{span} added up other attempts than {other.name}"
            if size and evidence.batch_is_everything and fold["samples"] != size:
                yield f"{span} counted {fold['samples']} of {size} samples in one of them"


def _commits(incarnation: Incarnation) -> Iterator[tuple[int, _Commit]]:
    attempts: dict[int, list[tuple[int, int]]] = defaultdict(list)
    samples: dict[int, int] = defaultdict(int)
    records = incarnation.of(Kind.COMMITTED)
    columns = (records[column].tolist() for column in _COLUMNS)
    for number, group, attempt, count in zip(*columns, strict=True):
        attempts[number].append((group, attempt))
        samples[number] = max(samples[number], count)
    last = next(reversed(attempts), None)
    for number, found in attempts.items():
        yield number, _Commit(incarnation, tuple(found), samples[number], is_last=number == last)


def _wrong(number: int, commits: list[_Commit], evidence: Evidence) -> Iterator[str]:
    longest = max(commits, key=lambda commit: len(commit.attempts))
    for commit in commits:
        where = f"{commit.incarnation.name} in evaluation {number}"
        groups = [group for group, _ in commit.attempts]
        if len(set(groups)) < len(groups):
            yield f"{where} added up a group twice: {groups}"
        elif commit.attempts != longest.attempts[: len(commit.attempts)]:
            yield f"{where} added up other attempts than {longest.incarnation.name}"
        elif len(groups) < len(longest.attempts) and not _may_lack(commit):
            yield f"{where} left out groups: it has {groups}"
        yield from (f"{where} {text}" for text in _wrong_samples(commit, longest, evidence))


def _wrong_samples(commit: _Commit, longest: _Commit, evidence: Evidence) -> Iterator[str]:
    size, groups = evidence.train_samples, [group for group, _ in longest.attempts]
    if commit.samples != longest.samples:
        yield f"counted {commit.samples} samples, {longest.incarnation.name} {longest.samples}"
    elif size and evidence.batch_is_everything and commit.samples != size:
        yield f"counted {commit.samples} of {size} samples"
    elif size and commit.samples > size:
        yield f"counted {commit.samples} samples of {size} that there are"
    if evidence.batch_is_everything and groups != list(range(len(groups))):
        yield f"added up groups {groups}: some of the batch are missing"


def _may_lack(commit: _Commit) -> bool:
    """Whether records may be missing: the incarnation was killed then, or its disk was full."""
    return commit.is_last or commit.incarnation.missing > 0
