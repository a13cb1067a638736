"""Records that say the same of one number after another become one. Pure; no record is changed."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Records = NDArray[np.void]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Which records are folded, and into what.

    A folded record is the last of its run, with the run's first number in the column `first` and
    the sum of its `samples`.
    """

    one: int
    """The kind of a record that is about one number."""
    folded: int
    """The kind of what a run of them becomes."""
    number: str
    """Column of the number, which grows by one in a run."""
    owner: str
    """Column of whose records are in one order: any other record of the same owner ends a run."""
    incarnation: str
    """Column of the owner's incarnation, one in a run."""
    began: str
    """Column that takes the time of the run's first record, in nanoseconds."""


class _Span(NamedTuple):
    """Of what one record tells."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    began: NDArray[np.int64]


def fold(records: Records, may: Mask, shape: Shape) -> Records:
    """The same log with fewer records: runs of those that `may` be folded, and of earlier folds.

    Each run stands where its first record stood, so that the order of one owner's records stays.
    """
    if not len(records):
        return records
    is_folded = records["kind"] == shape.folded
    chosen = is_folded | (may & (records["kind"] == shape.one))
    # By owner, and for each in the order of the log.
    order = np.argsort(records[shape.owner], kind="stable")
    ordered, in_run = records[order], chosen[order]
    span = _span(ordered, shape)
    begins = np.ones(len(records), np.bool_)
    begins[1:] = ~(
        in_run[1:]
        & in_run[:-1]
        & (ordered[shape.owner][1:] == ordered[shape.owner][:-1])
        & (ordered[shape.incarnation][1:] == ordered[shape.incarnation][:-1])
        & (span.first[1:] == span.last[:-1] + 1)
    )
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(records)) - 1
    made = ordered[ends].copy()
    runs = in_run[starts]
    made["kind"][runs] = shape.folded
    made["first"][runs] = span.first[starts][runs]
    made[shape.began][runs] = span.began[starts][runs]
    made["samples"][runs] = np.add.reduceat(ordered["samples"], starts)[runs]
    unfolded: Records = made[np.argsort(order[starts], kind="stable")]
    return unfolded


def unfold(records: Records, shape: Shape) -> Records:
    """One record for each number again: the first has its own time, the others the run's last.

    The sum of the samples is with the last one, the others have none; what else differed is gone.
    """
    is_folded = records["kind"] == shape.folded
    span = _span(records, shape)
    counts = np.where(is_folded, span.last - span.first + 1, 1)
    if np.any(counts < 1):
        raise ValueError("a folded record ends before it begins")
    made: Records = np.repeat(records, counts)
    place = np.arange(len(made)) - np.repeat(np.cumsum(counts) - counts, counts)
    mine = np.repeat(is_folded, counts)
    made["kind"][mine] = shape.one
    made[shape.number][mine] = (np.repeat(span.first, counts) + place)[mine]
    made["samples"][mine & (place < np.repeat(counts, counts) - 1)] = 0
    begins = mine & (place == 0)
    made["time_ns"][begins] = np.repeat(span.began, counts)[begins]
    return made


def _span(records: Records, shape: Shape) -> _Span:
    is_folded = records["kind"] == shape.folded
    last = records[shape.number].astype(np.int64)
    return _Span(
        first=np.where(is_folded, records["first"].astype(np.int64), last),
        last=last,
        began=np.where(is_folded, records[shape.began], records["time_ns"]).astype(np.int64),
    )
