"""With audit: summary most lies are still found, and what cannot be checked is said."""

from builders.ledgers import SECOND, LoggedRun
from disttrain.audit import audit
from disttrain.audit.finding import Finding, Verdict
from disttrain.parameter_server.ledger import Kind
from disttrain.replica.ledger import Kind as ReplicaKind

SETTLED = 4
"""Version of the oldest checkpoint that is kept."""


def a_run() -> LoggedRun:
    """Two replicas, two shards, eight updates."""
    run = LoggedRun()
    for _ in range(4):
        run.push(0)
        run.push(1)
    run.train_samples = 64
    return run


def findings(run: LoggedRun) -> dict[str, Finding]:
    found = audit.audit(run.evidence(settled=SETTLED))
    return {finding.promise[:2].strip(". "): finding for finding in found}


def violated(run: LoggedRun) -> set[str]:
    found = findings(run)
    return {key for key, finding in found.items() if finding.verdict is Verdict.VIOLATED}


def test_a_folded_run_holds_and_says_what_is_not_checked() -> None:
    found = findings(a_run())

    assert violated(a_run()) == set()
    assert found["1"].evidence == "16 acknowledgements, 16 updates in the values, 0 lost"
    assert "of 8 folded updates it is not checked" in found["4"].evidence
    assert "spec.audit" in found["4"].evidence
    assert found["sa"].verdict is Verdict.HELD
    assert found["fi"].verdict is Verdict.NOT_CHECKABLE
    assert "spec.audit" in found["fi"].evidence


def test_losses_of_a_rollback_are_checked_to_the_update() -> None:
    run = a_run()
    run.restart_shard(0, version=5, lost={0: 1, 1: 2})
    run.push(0)
    run.push(1)
    assert violated(run) == set()
    run.summary["updatesLost"] -= 1
    run.summary["updatesLostBySender"]["replica-1"] -= 1
    assert violated(run) == {"1"}


def test_a_wrong_claim_of_lost_updates_is_found() -> None:
    run = a_run()
    run.restart_shard(0, version=5, lost={0: 1, 1: 1})
    assert violated(run) == {"1"}


def test_an_acknowledged_update_that_was_never_applied_is_found() -> None:
    run = a_run()
    run.shards[0, 1] = [
        record
        for record in run.shards[0, 1]
        if (record["kind"], record["sender"], record.get("sequence")) != (Kind.PUSHED, 1, 1)
    ]
    assert violated(run) >= {"1", "4", "sa"}


def test_an_update_that_is_applied_twice_is_found() -> None:
    run = a_run()
    log = run.shards[1, 1]
    place = next(at for at, record in enumerate(log) if record["kind"] == Kind.PUSHED)
    log.insert(place, dict(log[place]))
    assert violated(run) >= {"2", "4"}


def test_an_update_after_its_senders_fence_is_found() -> None:
    run = a_run()
    log = run.shards[0, 1]
    fence = {"kind": int(Kind.FENCED), "sender": 1, "incarnation": 1, "shard_incarnation": 1}
    log.insert(5, fence | {"time_ns": log[5]["time_ns"]})
    assert "8" in violated(run)


def test_a_version_that_goes_back_for_a_client_is_found() -> None:
    run = a_run()
    answers = [record for record in run.replicas[0, 1] if record["shard"] == 1]
    answers[1]["version"], answers[2]["version"] = answers[2]["version"], answers[1]["version"]
    assert violated(run) == {"4"}


def test_samples_that_are_in_no_account_are_found() -> None:
    run = a_run()
    run.summary["samples"] -= 8
    assert violated(run) == {"sa"}


def test_samples_are_not_accounted_for_when_a_replica_died() -> None:
    run = a_run()
    run.fence(1)
    run.join(1, 2)
    run.push(1)
    run.push(0)
    assert violated(run) == set()
    assert findings(run)["sa"].verdict is Verdict.NOT_CHECKABLE
    assert findings(run)["sa"].evidence.startswith("a replica died, and folded ledgers")


def test_samples_are_not_accounted_for_when_the_run_was_resumed() -> None:
    run = a_run()
    run.resume([8, 8], shards=2)
    run.push(0)
    run.push(1)
    assert violated(run) == set()
    assert findings(run)["sa"].verdict is Verdict.NOT_CHECKABLE
    assert findings(run)["sa"].evidence.startswith("the run was resumed, and folded ledgers")


def test_a_pause_among_folded_updates_is_no_violation_and_is_said() -> None:
    run = LoggedRun()
    run.push(0)
    run.push(1)
    run.fence(1)
    run.join(1, 2)
    for _ in range(70):
        run.push(0)
    found = audit.audit(run.evidence(settled=80))
    recovery = next(finding for finding in found if finding.promise.startswith("7"))
    assert recovery.verdict is Verdict.HELD
    assert "1 among folded updates, see spec.audit" in recovery.evidence


def test_a_shard_that_came_back_late_is_found_in_folded_ledgers() -> None:
    run = a_run()
    run.restart_shard(0, version=8, lost={})
    run.now += 61 * SECOND
    for _ in range(4):
        run.push(0)
    found = audit.audit(run.evidence(settled=12))
    assert [one.promise[0] for one in found if one.verdict is Verdict.VIOLATED] == ["7"]


def test_a_shard_that_answered_and_has_no_log_is_found() -> None:
    run = a_run()
    for record in run.replicas[0, 1]:
        if record["kind"] == ReplicaKind.ACKNOWLEDGED and record["number"] == 1:
            record["shard_incarnation"] = 9
    assert findings(run)["lo"].verdict is Verdict.NOT_WHOLE
