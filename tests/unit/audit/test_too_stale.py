"""Pushes that a shard refused as too old, and what the other process pushed before it heard."""

import pytest

from builders.ledgers import LoggedRun
from disttrain.audit import audit
from disttrain.audit.finding import Verdict
from disttrain.parameter_server.ledger import Kind
from disttrain.replica.ledger import Kind as ReplicaKind
from disttrain.transport.header import Reason

SETTLED = 100
"""Everything is folded."""


def refuse(run: LoggedRun) -> None:
    """Shard 1 refuses push 2; shard 0, which another process has, applies 2 and 3."""
    for _ in (2, 3):
        run.push(0, shards=(0,))
    refused = {"sequence": 2, "samples": 8, "reason": Reason.TOO_STALE}
    run.log(1, Kind.REFUSED, sender=0, incarnation=1, **refused)
    run.note(0, ReplicaKind.REFUSED, number=2)
    run.note(0, ReplicaKind.HELD_BACK, number=3, shard=1, samples=8)


def a_run() -> LoggedRun:
    run = LoggedRun(replicas=1)
    run.push(0)
    refuse(run)
    for _ in range(4):
        run.push(0)
    return run


def violated(run: LoggedRun, settled: int | None) -> set[str]:
    found = audit.audit(run.evidence(settled=settled))
    return {each.promise[:2] for each in found if each.verdict is Verdict.VIOLATED}


@pytest.mark.parametrize("settled", [None, SETTLED])
def test_they_count_once_and_the_other_process_has_no_gap(settled: int | None) -> None:
    run = a_run()
    assert run.summary["samples"] == 5 * 8
    assert violated(run, settled) == set()


@pytest.mark.parametrize("settled", [None, SETTLED])
def test_a_push_that_nobody_held_back_is_missing(settled: int | None) -> None:
    run = a_run()
    log = run.replicas[0, 1]
    log[:] = [record for record in log if record["kind"] != ReplicaKind.HELD_BACK]
    assert violated(run, settled) == {"1.", "sa"}


def test_they_are_repeated_if_the_replica_died_before_it_could_say_so() -> None:
    """The coordinator has it of the shards alone, how far the replica got at most."""
    run = LoggedRun(replicas=1)
    run.push(0)
    refuse(run)
    run.fence(0)
    run.summary["restarts"]["replica"] = 1
    run.join(0, 2)
    run.push(0)
    run.push(0)
    run.summary["samplesRepeated"] = 16
    assert violated(run, None) == set()
