"""The account of a run that was resumed, also with another number of shards."""

import pytest

from builders.ledgers import LoggedRun
from disttrain.audit import audit
from disttrain.audit.finding import Verdict
from disttrain.parameter_server.ledger import Kind


def violated(run: LoggedRun) -> set[str]:
    findings = audit.audit(run.evidence())
    return {found.promise for found in findings if found.verdict is Verdict.VIOLATED}


def a_run(before: int, after: int) -> LoggedRun:
    """Eight updates on each shard; the checkpoint holds five or six of them."""
    run = LoggedRun(shards=before)
    for _ in range(4):
        run.push(0)
        run.push(1)
    run.resume([6] + [5] * (before - 1), after)
    run.push(0)
    run.push(1)
    return run


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (3, 1), (1, 2), (2, 2)])
def test_its_account_is_whole(before: int, after: int) -> None:
    run = a_run(before, after)
    assert violated(run) == set()
    assert run.summary["updatesLost"] == 2 + 3 * (before - 1)


def test_losses_of_a_shard_that_is_no_more_must_be_told() -> None:
    run = a_run(3, 2)
    told = [record for record in run.shards[0, 1001] if record["kind"] != Kind.LOST]
    run.shards[0, 1001] = told
    run.summary["updatesLost"] -= 5
    run.summary["updatesLostBySender"] = {"replica-0": 1, "replica-1": 2}
    assert any("acknowledged" in promise for promise in violated(run))


def test_updates_that_went_with_a_shard_that_is_no_more_are_not_in_the_account() -> None:
    run = a_run(3, 2)
    run.summary["samples"] += 8
    assert violated(run) == {"samples are accounted for"}
    run.summary["samples"] -= 16
    assert violated(run) == {"samples are accounted for"}


@pytest.mark.parametrize("joined", [0, 1, 2])
def test_a_job_that_ended_before_its_shards_had_told_what_they_hold_has_no_account_yet(
    joined: int,
) -> None:
    run = LoggedRun()
    for _ in range(4):
        run.push(0)
    run.resume([3, 3], 2)
    for shard in range(joined, 2):
        del run.shards[shard, 1001]
    run.replicas = {
        incarnation: log for incarnation, log in run.replicas.items() if incarnation[1] < 1001
    }
    run.summary |= {"phase": "Stopped", "samples": 8 * 2}
    run.has_trained = False

    found = {finding.promise: finding for finding in audit.audit(run.evidence())}

    assert found["samples are accounted for"].verdict is Verdict.NOT_CHECKABLE
    assert Verdict.VIOLATED not in {finding.verdict for finding in found.values()}
