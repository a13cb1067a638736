"""What becomes of a shard's records that no rollback can touch any more. Pure.

A checkpoint that is not kept is never gone back to: the updates in it are in the values for good,
or were counted as lost long ago. Of those the numbers are enough, which follow one another. A
record that breaks an order stays as it is, for the audit to find.
"""

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from disttrain.parameter_server.ledger import Kind
from disttrain.telemetry import folding
from disttrain.telemetry.folding import Mask, Records, Shape

PUSHES = Shape(
    one=Kind.PUSHED,
    folded=Kind.PUSHES_FOLDED,
    number="sequence",
    owner="sender",
    life="incarnation",
    began="read_version",
)
_COUNTED = ("sequence", "lease_offset", "lease", "samples")
"""What all shards have to agree on: evaluation, group, attempt, samples of the batch."""


def fold(records: Records, version: int) -> Records:
    """The log with everything up to this version of the shard folded."""
    settled = records["version"] <= version
    shorter = folding.fold(records, settled & ~_breaks_order(records), PUSHES)
    return _fold_commits(shorter, version)


def _breaks_order(records: Records) -> Mask:
    """Updates whose version is not one more than the highest before."""
    begin = records[np.isin(records["kind"], [Kind.RESTORED, Kind.PUSHES_FOLDED])]["version"]
    pushed = records["kind"] == Kind.PUSHED
    versions = records["version"][pushed].astype(np.int64)
    before = np.append(np.int64(np.max(begin, initial=0)), versions[:-1])
    breaks = np.zeros(len(records), np.bool_)
    breaks[pushed] = versions != np.maximum.accumulate(before)[: len(versions)] + 1
    return breaks


def _fold_commits(records: Records, version: int) -> Records:
    settled = (records["kind"] == Kind.COMMITTED) & (records["version"] <= version)
    chosen = settled & ~_is_twice(records, settled) | (records["kind"] == Kind.COMMITS_FOLDED)
    if not settled.any():
        return records
    made = [_sum(run) for run in _runs(records[chosen])]
    place = int(np.flatnonzero(chosen)[0])
    rest = ~chosen
    return np.concatenate([records[:place][rest[:place]], *made, records[place:][rest[place:]]])


def _is_twice(records: Records, settled: Mask) -> Mask:
    """Records of evaluations that count a group twice."""
    pairs = np.stack([records["sequence"], records["lease_offset"]], axis=1)[settled]
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    return np.isin(records["sequence"], found[counts > 1][:, 0])


def _runs(commits: Records) -> Iterator[Records]:
    """One coordinator's, one after the other."""
    changes = np.flatnonzero(np.diff(commits["incarnation"].astype(np.int64))) + 1
    yield from (run for run in np.split(commits, changes) if len(run))


def _sum(run: Records) -> Records:
    """One record for all. The CRC goes on from that of an earlier fold."""
    is_folded = run["kind"] == Kind.COMMITS_FOLDED
    before, new = run[is_folded], run[~is_folded]
    made = run[-1:].copy()
    made["kind"] = Kind.COMMITS_FOLDED
    made["first"] = before["first"][0] if len(before) else run["sequence"][0]
    made["read_version"] = before["read_version"][0] if len(before) else run["time_ns"][0]
    made["chunks"] = int(before["chunks"].sum()) + len(np.unique(new["sequence"]))
    made["samples"] = run["samples"].min()
    made["lease"] = zlib.crc32(_agreed(new), int(before["lease"][0]) if len(before) else 0)
    return made


def _agreed(commits: Records) -> bytes:
    columns: list[NDArray[np.int64]] = [commits[name].astype("<i8") for name in _COUNTED]
    return np.stack(columns, axis=1).tobytes()
