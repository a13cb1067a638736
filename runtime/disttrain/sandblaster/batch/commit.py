"""What the sums of a complete evaluation are, and how they make the gradient of the batch. Pure."""

from dataclasses import dataclass, replace

from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.batch import groups
from disttrain.sandblaster.batch.groups import Evaluation, Tally
from disttrain.sandblaster.batch.runs import Run
from disttrain.sandblaster.names import AFTER, ARRIVED, BEFORE
from disttrain.sandblaster.operations import Operation


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


def of(evaluation: Evaluation, known: Tally | None) -> Commit:
    """The commit. `known`: of what the batch before shares, if it was not evaluated again."""
    here = groups.tally(evaluation, evaluation.places)
    if not evaluation.runs:
        return Commit(samples=here.samples, batch=here)
    parts = {run.vector: groups.tally(evaluation, run.groups) for run in evaluation.runs}
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
