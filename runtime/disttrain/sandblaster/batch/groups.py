"""Who computes which group of a batch, whose result counts, and what a complete batch adds up to.

Pure: a value and its changes. Each grant is an attempt with a number that is never used again. The
first attempt at a group that is complete wins, and later ones change nothing: so a group counts
once, whoever was slow, was declared dead or answered twice.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Annotated

from pydantic import Field

from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.batch import batches
from disttrain.sandblaster.batch.batches import Run, pairwise
from disttrain.sandblaster.operations import AFTER, ARRIVED, BEFORE, Operation


@dataclass(frozen=True, slots=True)
class Worker:
    """One incarnation of a replica."""

    index: int
    incarnation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BackupRules:
    """Copies of groups that somebody else has begun (DistBelief 4.2)."""

    enabled: bool = True
    start_when_remaining: int = 8
    """Copies are given out when no more groups than this have no result."""
    most_attempts: int = 3
    """At one group at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A group in the hands of a replica."""

    number: int
    """Unique in the job."""
    group: int
    worker: Worker


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a replica says of an attempt whose gradient is staged."""

    attempt: int
    evaluation: int
    loss_sum: float
    """Over the samples of the group."""
    samples: Annotated[int, Field(ge=1)]
    count: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """What the loss is a sum of, if not the samples."""
    shards: tuple[int, ...]
    """Incarnations of the shards that said they hold all of it, by the shards' indices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Winner:
    """The attempt that counts for its group."""

    attempt: int
    loss_sum: float
    samples: int
    count: float | None = None
    """See `Result`."""


@dataclass(kw_only=True, slots=True)
class Evaluation:
    """The groups of one evaluation. Changed by the functions of this module only."""

    number: int
    """Unique in the job, increasing."""
    shards: tuple[int, ...]
    """Incarnations of the shards: what an earlier incarnation of one had staged is gone."""
    waiting: list[int]
    """Groups that nobody has, the next one first."""
    homes: dict[int, int] = field(default_factory=dict)
    """Replica that had a group last, by group: its data is there."""
    attempts: dict[int, Attempt] = field(default_factory=dict)
    """Under way, by number."""
    winners: dict[int, Winner] = field(default_factory=dict)
    """By group."""
    groups: int
    runs: tuple[Run, ...] = ()
    """What is summed apart; empty: all groups from 0 on, in one sum."""
    next_attempt: int = 1
    requeued: int = 0
    """Groups that came back without a result."""
    copies: int = 0
    """Attempts at groups that somebody else had begun."""

    @property
    def places(self) -> Sequence[int]:
        """The groups, run by run, by their places in the sums."""
        return batches.places(self.runs, self.groups)

    @property
    def is_complete(self) -> bool:
        return len(self.winners) == self.groups


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """What some groups came to."""

    loss_sum: float
    """Over all samples."""
    samples: int
    count: float | None = None
    """What the loss is a sum of, if not the samples."""

    @property
    def divisor(self) -> float:
        """What makes means of sums; never 0."""
        return self.count or self.samples


def begun(
    number: int,
    groups: int | tuple[Run, ...],
    shards: tuple[int, ...],
    before: Evaluation | None = None,
) -> Evaluation:
    """A new evaluation; whoever had a group before gets it again if it asks in time.

    `groups`: as many from 0 on, or those of some runs.
    """
    apart = () if isinstance(groups, int) else groups
    places = range(groups) if isinstance(groups, int) else batches.places(apart, 0)
    return Evaluation(
        number=number,
        shards=shards,
        groups=len(places),
        runs=apart,
        waiting=list(places),
        homes={} if before is None else dict(before.homes),
        next_attempt=1 if before is None else before.next_attempt,
    )


def has_work(evaluation: Evaluation, worker: Worker, rules: BackupRules) -> bool:
    return bool(evaluation.waiting) or _next_copy(evaluation, worker, rules) is not None


def missed(evaluation: Evaluation, worker: Worker, holding: Collection[int]) -> Attempt | None:
    """An attempt of a replica that it does not know of: the answer was lost."""
    for attempt in evaluation.attempts.values():
        if attempt.worker == worker and attempt.number not in holding:
            return attempt
    return None


def grant(
    evaluation: Evaluation, worker: Worker, rules: BackupRules, holding: Collection[int] = ()
) -> Attempt | None:
    """The next group for a replica: its own ones, nobody's, others', then copies.

    `holding`: the attempts it has. One that it should have comes first: its answer was lost.
    """
    if attempt := missed(evaluation, worker, holding):
        return attempt
    group = _next_waiting(evaluation, worker)
    if group is not None:
        evaluation.waiting.remove(group)
    else:
        group = _next_copy(evaluation, worker, rules)
        evaluation.copies += group is not None
    if group is None:
        return None
    attempt = Attempt(number=evaluation.next_attempt, group=group, worker=worker)
    evaluation.next_attempt += 1
    evaluation.attempts[attempt.number] = attempt
    return attempt


def take(evaluation: Evaluation, worker: Worker, result: Result) -> bool:
    """Whether the result wins its group; one that is late, foreign or incomplete changes nothing.

    A result that has won may be said again, and wins no second time.
    """
    attempt = evaluation.attempts.get(result.attempt)
    if attempt is None or attempt.worker != worker or result.evaluation != evaluation.number:
        return False
    if result.shards != evaluation.shards:
        return False
    evaluation.winners[attempt.group] = Winner(
        attempt=attempt.number,
        loss_sum=result.loss_sum,
        samples=result.samples,
        count=result.count,
    )
    evaluation.homes[attempt.group] = worker.index
    for number in _at(evaluation, attempt.group):
        del evaluation.attempts[number]
    return True


def lose(evaluation: Evaluation, worker: Worker) -> None:
    """Give the groups of a replica that is gone to others; nothing of it counts from now on."""
    for attempt in [one for one in evaluation.attempts.values() if one.worker == worker]:
        del evaluation.attempts[attempt.number]
        if not _at(evaluation, attempt.group):
            evaluation.waiting.insert(0, attempt.group)
            evaluation.requeued += 1


def winners(evaluation: Evaluation) -> tuple[int, ...]:
    """The attempts to be committed, by their groups' places; the evaluation is complete."""
    return tuple(evaluation.winners[group].attempt for group in evaluation.places)


def tally(evaluation: Evaluation, places: Sequence[int]) -> Tally:
    """What these groups of a complete evaluation came to, added up over their places."""
    found = [evaluation.winners[group] for group in places]
    counts = [one.count for one in found if one.count is not None]
    return Tally(
        loss_sum=pairwise([one.loss_sum for one in found], add),
        samples=sum(one.samples for one in found),
        count=pairwise(counts, add) if counts else None,
    )


def _next_waiting(evaluation: Evaluation, worker: Worker) -> int | None:
    """Sequential groups to the same replica: in a later evaluation it has their data."""
    own = [group for group in evaluation.waiting if evaluation.homes.get(group) == worker.index]
    new = [group for group in evaluation.waiting if group not in evaluation.homes]
    return next(iter([*own, *new, *reversed(evaluation.waiting)]), None)


def _next_copy(evaluation: Evaluation, worker: Worker, rules: BackupRules) -> int | None:
    """The group with the fewest attempts, the one begun first among them."""
    remaining = evaluation.groups - len(evaluation.winners)
    if not rules.enabled or remaining > rules.start_when_remaining:
        return None
    tries: dict[int, list[Attempt]] = {}
    for attempt in evaluation.attempts.values():
        tries.setdefault(attempt.group, []).append(attempt)
    possible = _copyable(tries, worker, rules.most_attempts)
    return min(possible, key=lambda group: len(tries[group]), default=None)


def _copyable(tries: Mapping[int, Collection[Attempt]], worker: Worker, most: int) -> list[int]:
    return [
        group
        for group, attempts in tries.items()
        if len(attempts) < most and all(one.worker != worker for one in attempts)
    ]


def _at(evaluation: Evaluation, group: int) -> list[int]:
    return [one.number for one in evaluation.attempts.values() if one.group == group]


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """A complete evaluation."""

    samples: int
    """That were worked on."""
    batch: Tally
    """Of all samples of the batch: also those that were known before."""
    runs: tuple[Run, ...] = ()
    """What the shards keep apart, with samples; empty: nothing, there is one sum."""
    adding: tuple[Operation, ...] = ()
    """What makes the gradient that arrived of several means."""
    overlap: Tally | None = None
    """Of what the next batch shares."""


def committed(evaluation: Evaluation, known: Tally | None) -> Commit:
    """The commit. `known`: of what the batch before shares, if it was not evaluated again."""
    here = tally(evaluation, evaluation.places)
    if not evaluation.runs:
        return Commit(samples=here.samples, batch=here)
    parts = {run.vector: tally(evaluation, run.groups) for run in evaluation.runs}
    runs = tuple(_known(run, parts[run.vector]) for run in evaluation.runs)
    if BEFORE not in parts and known is not None:
        parts = {BEFORE: known, **parts}
    counts = [part.count for part in parts.values() if part.count is not None]
    batch = Tally(
        loss_sum=sum(part.loss_sum for part in parts.values()),
        samples=sum(part.samples for part in parts.values()),
        count=sum(counts) if counts else None,
    )
    weights = {vector: part.divisor / batch.divisor for vector, part in parts.items()}
    return Commit(
        samples=here.samples,
        batch=batch,
        runs=runs,
        adding=(ops.Combine(target=ARRIVED, terms=weights),),
        overlap=parts[AFTER],
    )


def _known(run: Run, part: Tally) -> Run:
    return replace(run, samples=part.samples, divisor=part.count)
