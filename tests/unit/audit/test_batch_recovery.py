"""Promise 7 of a batch method: a death is measured until the next evaluation."""

from collections.abc import Sequence

import numpy as np

from disttrain.audit import audit, recovery
from disttrain.audit.evidence import Evidence, Incarnation, Records
from disttrain.audit.finding import Finding, Verdict
from disttrain.parameter_server.ledger import RECORD, Kind
from disttrain.replica.ledger import RECORD as REPLICA_RECORD
from disttrain.replica.ledger import Kind as ReplicaKind

SECOND = 10**9


def a_shard(*incarnations: Sequence[int]) -> tuple[Incarnation, ...]:
    """Incarnations that added up one group at each of these seconds."""
    return tuple(
        Incarnation(process="shard-0", index=0, incarnation=number, records=_shard_records(seconds))
        for number, seconds in enumerate(incarnations, start=1)
    )


def _shard_records(seconds: Sequence[int]) -> Records:
    records = np.zeros(len(seconds), RECORD)
    records["kind"] = Kind.COMMITTED
    records["time_ns"] = [second * SECOND for second in seconds]
    records["sequence"] = seconds
    return records


def ordered_by(shard: tuple[Incarnation, ...], *coordinators: int) -> tuple[Incarnation, ...]:
    """The same of a shard, whose commands came from these incarnations of the coordinator."""
    shard[0].records["incarnation"] = coordinators
    return shard


def a_replica(*began: int) -> tuple[Incarnation, ...]:
    """Incarnations that logged nothing but that they began."""
    incarnations = []
    for number, second in enumerate(began, start=1):
        records = np.zeros(1, REPLICA_RECORD)
        records["kind"] = ReplicaKind.MISSING
        records["time_ns"] = second * SECOND
        incarnations.append(
            Incarnation(process="replica-0", index=0, incarnation=number, records=records)
        )
    return tuple(incarnations)


def found(shard: tuple[Incarnation, ...], replica: tuple[Incarnation, ...] = ()) -> Finding:
    return recovery.check(
        Evidence(record=False, shards={0: shard}, replicas={0: replica}, batch_method=True)
    )


def test_a_shard_that_came_back_is_measured_until_its_next_evaluation() -> None:
    finding = found(a_shard([10, 20], [32, 40]))

    assert finding.verdict is Verdict.HELD
    assert finding.evidence == "1 pauses after ended incarnations, the longest 12.0 s"


def test_a_replica_that_came_back_is_measured_from_the_evaluation_before_its_new_incarnation() -> (
    None
):
    finding = found(a_shard([10, 20, 27, 40]), a_replica(1, 23))

    assert finding.evidence == "1 pauses after ended incarnations, the longest 7.0 s"


def test_a_long_evaluation_after_a_death_is_no_proof_of_a_pause() -> None:
    finding = found(a_shard([10, 20], [95]))

    assert finding.verdict is Verdict.NOT_CHECKABLE
    assert "75.0 s passed after the end of shard-0 (incarnation 1)" in finding.evidence


def test_a_coordinator_that_came_back_is_measured_from_evaluation_to_evaluation() -> None:
    finding = found(ordered_by(a_shard([10, 20, 33, 40]), 1, 1, 2, 2))

    assert finding.verdict is Verdict.HELD
    assert finding.evidence == "1 pauses after ended incarnations, the longest 13.0 s"


def test_a_coordinator_that_took_long_is_named() -> None:
    finding = found(ordered_by(a_shard([10, 20, 100]), 1, 1, 2))

    assert finding.verdict is Verdict.NOT_CHECKABLE
    assert "80.0 s passed after the end of coordinator (incarnation 1)" in finding.evidence


def test_nobody_died() -> None:
    finding = found(a_shard([10, 20]), a_replica(1))

    assert finding.evidence == "no shard or replica ended before the job did"


def test_versions_and_reads_are_no_promises_about_a_batch_method() -> None:
    evidence = Evidence(record=False, shards={0: a_shard([10])}, replicas={}, batch_method=True)
    standings = {finding.promise[0]: finding.verdict for finding in audit.audit(evidence)}

    assert standings["4"] is standings["5"] is Verdict.NOT_APPLICABLE
    assert standings["3"] is Verdict.HELD
