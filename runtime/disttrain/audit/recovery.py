"""Promise 7: after any one failure training moves again within a minute, alone.

What moves are the updates of Downpour, and the evaluations of a batch method.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from disttrain.audit.evidence import Evidence, Incarnation, Records
from disttrain.audit.finding import Finding, judge, not_checkable
from disttrain.parameter_server import ledger as shard_ledger
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

PROMISE = "7. training moves again within a minute"

ALLOWED_SECONDS = 60.0

_NANOSECONDS = 1e9


_COMMITS = (ShardKind.COMMITTED, ShardKind.COMMITS_FOLDED)
_FOLDED = (ShardKind.PUSHES_FOLDED, ShardKind.COMMITS_FOLDED)


class _Pause(NamedTuple):
    """From a failure to the next update of which the time is known."""

    after: str
    seconds: float
    is_known: bool = True
    """Else there may have been updates before, which are folded."""


class _Updates(NamedTuple):
    """When there were some: on one shard, or anywhere."""

    times: NDArray[np.int64]
    """In order; of folded ones the first and the last."""
    folded: Records


def check(evidence: Evidence) -> Finding:
    """From the last sign of an incarnation that ended to the next update on the shards it concerns.

    What the coordinator's incarnations do is in the logs of the shards, for a batch method.
    """
    runs = range(evidence.last_run + 1)
    pauses = [pause for run in runs for pause in _pauses(evidence, run)]
    of_coordinators = [pause for run in runs for pause in _pauses_of_coordinators(evidence, run)]
    unmeasured = _unmeasured(evidence, len(of_coordinators))
    pauses, between = _apart(pauses + of_coordinators)
    unmeasured += between
    move = "evaluation" if evidence.batch_method else "update"
    violations = [
        f"{pause.seconds:.1f} s passed after the end of {pause.after} until the next {move}"
        for pause in pauses
        if pause.seconds > ALLOWED_SECONDS
    ]
    if violations and (why := _why_long(evidence)):
        return not_checkable(PROMISE, f"{violations[0]}; {why}")
    longest = max((pause.seconds for pause in pauses), default=0.0)
    text = f"{len(pauses)} pauses after ended incarnations, the longest {longest:.1f} s"
    nothing = "no shard or replica ended before the job did"
    return judge(PROMISE, violations, (text if pauses else nothing) + unmeasured)


def _why_long(evidence: Evidence) -> str:
    """What may take longer than a minute while training moves; empty: nothing."""
    if evidence.batch_method:
        return "evaluations may take longer than a minute, and their groups are not logged"
    if evidence.pushes_seldom:
        return "the local steps of a push may take longer than a minute, and are not logged"
    return ""


def _apart(pauses: list[_Pause]) -> tuple[list[_Pause], str]:
    """Those that are measured, and what to say of others."""
    kept = [pause for pause in pauses if pause.is_known or pause.seconds <= ALLOWED_SECONDS]
    count = len(pauses) - len(kept)
    return kept, f"; {count} among folded updates, see spec.audit" if count else ""


def _unmeasured(evidence: Evidence, measured: int) -> str:
    ends = 0 if evidence.summary is None else evidence.summary.restarts.get("coordinator", 0)
    count = ends - measured
    return f"; {count} ends of the coordinator, which keeps no such log" if count > 0 else ""


def _pauses(evidence: Evidence, run: int) -> Iterator[_Pause]:
    updates = {
        shard: _with_end(_updates(incarnations, run), evidence, run)
        for shard, incarnations in evidence.shards.items()
    }
    for shard, incarnations in evidence.shards.items():
        mine = [incarnation for incarnation in incarnations if incarnation.run == run]
        for incarnation in mine[:-1]:
            yield from _until_next(incarnation, _last_sign_ns(incarnation), updates[shard])
    everywhere = _together(updates.values())
    for incarnations in evidence.replicas.values():
        mine = [incarnation for incarnation in incarnations if incarnation.run == run]
        for incarnation, successor in pairwise(mine):
            end = _last_sign_ns(incarnation)
            if evidence.batch_method:
                end = max(end, _latest_before(successor, everywhere.times))
            yield from _until_next(incarnation, end, everywhere)


def _pauses_of_coordinators(evidence: Evidence, run: int) -> Iterator[_Pause]:
    """From the last evaluation that one incarnation ended to the first that the next one did."""
    incarnations = next(iter(evidence.shards.values()), ())
    mine = [incarnation.of(*_COMMITS) for incarnation in incarnations if incarnation.run == run]
    commits = np.concatenate([*mine, np.zeros(0, shard_ledger.RECORD)])
    for place in np.flatnonzero(np.diff(commits["incarnation"].astype(np.int64)) > 0):
        before, after = commits[place], commits[place + 1]
        seconds = (_began_ns(after) - int(before["time_ns"])) / _NANOSECONDS
        yield _Pause(f"coordinator (incarnation {before['incarnation']})", seconds)


def _began_ns(commit: np.void) -> int:
    is_folded = commit["kind"] == ShardKind.COMMITS_FOLDED
    return int(commit["read_version" if is_folded else "time_ns"])


def _last_sign_ns(incarnation: Incarnation) -> int:
    return int(np.max(incarnation.records["time_ns"], initial=0))


def _latest_before(successor: Incarnation, everywhere: NDArray[np.int64]) -> int:
    """The last evaluation before an incarnation began: a batch method's replicas log no work.

    Evaluations that ended after the death of the incarnation before it show that training moved on.
    """
    if not len(successor.records):
        return 0
    place = int(np.searchsorted(everywhere, int(np.min(successor.records["time_ns"]))))
    return int(everywhere[place - 1]) if place else 0


def _updates(incarnations: tuple[Incarnation, ...], run: int) -> _Updates:
    mine = [incarnation for incarnation in incarnations if incarnation.run == run]
    found = [
        records
        for incarnation in mine
        for records in (incarnation.each(), incarnation.of(*_COMMITS))
    ]
    folded = [incarnation.of(*_FOLDED) for incarnation in mine] + [np.zeros(0, shard_ledger.RECORD)]
    began = [records["read_version"] for records in folded]
    times = np.concatenate([*(records["time_ns"] for records in found), *began])
    return _Updates(times=np.sort(times.astype(np.int64)), folded=np.concatenate(folded))


def _together(updates: Iterable[_Updates]) -> _Updates:
    found = list(updates)
    return _Updates(
        times=np.sort(np.concatenate([*(one.times for one in found), np.zeros(0, np.int64)])),
        folded=np.concatenate([*(one.folded for one in found), np.zeros(0, shard_ledger.RECORD)]),
    )


def _with_end(updates: _Updates, evidence: Evidence, run: int) -> _Updates:
    """A job that never moved again is measured until the last that was heard of it."""
    if evidence.is_complete or run < evidence.last_run or not evidence.last_sign_ns:
        return updates
    last = max(evidence.last_sign_ns, *updates.times.tolist(), 0)
    return updates._replace(times=np.append(updates.times, last))


def _until_next(incarnation: Incarnation, end_ns: int, updates: _Updates) -> Iterator[_Pause]:
    """Nothing if no update follows in a job that is complete: nothing was left to do.

    Who was told to end has not failed, and the whole job may have been told so for as long as
    somebody liked.
    """
    told_to_end = ShardKind.STOPPED if incarnation.is_shard else ReplicaKind.LEFT
    if not len(incarnation.records) or len(incarnation.of(told_to_end)):
        return
    times, folded = updates
    place = int(np.searchsorted(times, end_ns, side="right"))
    if place < len(times):
        seconds = (int(times[place]) - end_ns) / _NANOSECONDS
        is_among = (folded["read_version"] <= end_ns) & (end_ns < folded["time_ns"])
        yield _Pause(incarnation.name, seconds, is_known=not is_among.any())
