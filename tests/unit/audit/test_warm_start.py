"""What is checked of a batch method's warm start: the account of its samples, and its epochs."""

from dataclasses import replace

import pytest

from builders.ledgers import LoggedRun
from disttrain.audit import audit
from disttrain.audit.evidence import Evidence
from disttrain.audit.finding import Finding, Verdict
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind

METHOD = 96
"""Samples of the batch method, after the 40 of the warm start: three passes over the data."""


def a_run() -> LoggedRun:
    """An epoch of 32 samples and a quarter of another one, then three evaluations of everything."""
    run = LoggedRun(shards=2, replicas=1)
    run.train_samples = 32
    for lease in (1, 2, 3):
        place = {"epoch": (lease - 1) // 2, "portion": (lease - 1) % 2}
        run.note(0, Kind.LEASE_BEGUN, lease=lease, **place)
        for offset in (8, 16) if lease < 3 else (8,):
            run.push(0, lease=lease, lease_offset=offset)
    run.summary["sandblaster"] = {"warmStartSamples": 40}
    run.summary["samples"] += METHOD
    run.summary["epochs"] = 1 + METHOD // 32
    for evaluation in range(1, 4):
        for shard in (0, 1):
            run.log(shard, ShardKind.COMMITTED, sequence=evaluation, lease=evaluation, samples=32)
    return run


def findings(run: LoggedRun) -> dict[str, Finding]:
    return {finding.promise: finding for finding in audit.audit(evidence(run))}


def evidence(run: LoggedRun) -> Evidence:
    return replace(run.evidence(), batch_method=True, warm_start=True)


def test_all_of_it_is_accounted_for() -> None:
    found = findings(a_run())

    assert not [finding for finding in found.values() if finding.violations]
    samples, epochs = found["samples are accounted for"], found["finished epochs are whole"]
    assert samples.evidence.startswith("40 samples applied")
    assert "40 processed and 0 repeated" in samples.evidence
    assert epochs.evidence == "1 epochs with each of their 32 samples"


@pytest.mark.parametrize("more", [-8, 8])
def test_other_samples_than_it_was_to_have_are_seen(more: int) -> None:
    run = a_run()
    run.summary["sandblaster"] = {"warmStartSamples": 40 + more}

    assert findings(run)["samples are accounted for"].verdict is Verdict.VIOLATED


def test_an_epoch_with_a_hole_is_seen() -> None:
    run = a_run()
    for log in run.shards.values():
        log.remove(next(record for record in log if record["kind"] == ShardKind.PUSHED))

    assert findings(run)["finished epochs are whole"].verdict is Verdict.VIOLATED


def test_a_job_that_ended_within_it_has_no_more_samples_than_it_says() -> None:
    run = a_run()
    run.summary |= {"samples": 40, "epochs": 1, "sandblaster": {"warmStartSamples": 1000}}

    assert findings(run)["samples are accounted for"].verdict is Verdict.HELD


def test_what_the_method_did_twice_is_not_missed_in_the_warm_start() -> None:
    run = a_run()
    run.summary["samplesRepeated"] = 32

    assert findings(run)["samples are accounted for"].verdict is Verdict.HELD
