"""Runs whose logs are right hold; every single lie in them is found, under its promise."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from builders.ledgers import SECOND, LoggedRun
from disttrain.audit import audit, logs, recovery, torn_reads
from disttrain.audit.evidence import Evidence, SavedCheckpoint
from disttrain.audit.finding import Finding, Verdict
from disttrain.parameter_server.ledger import Kind
from disttrain.replica.ledger import Kind as ReplicaKind
from disttrain.state.placement import TRAINED


def findings(run: LoggedRun) -> dict[str, Finding]:
    return {finding.promise[:2].strip(". "): finding for finding in audit.audit(run.evidence())}


def violated(run: LoggedRun) -> set[str]:
    found = findings(run)
    return {key for key, finding in found.items() if finding.verdict is Verdict.VIOLATED}


def a_quiet_run() -> LoggedRun:
    """Two replicas, two shards, eight updates, nothing happens."""
    run = LoggedRun()
    for _ in range(4):
        run.push(0)
        run.push(1)
    return run


def a_run_with_a_rollback() -> LoggedRun:
    """Shard 0 comes back with version 5 after 8 updates."""
    run = a_quiet_run()
    run.restart_shard(0, version=5, lost={0: 1, 1: 2})
    run.push(0)
    run.push(1)
    return run


def a_run_with_a_death() -> LoggedRun:
    """Replica 1 dies and comes back."""
    run = a_quiet_run()
    run.fence(1)
    run.join(1, 2)
    run.summary["restarts"]["replica"] = 1
    run.push(1)
    run.push(0)
    return run


def a_recorded_run() -> LoggedRun:
    """One fetch of two chunks per shard."""
    run = LoggedRun(record=True)
    for shard in (0, 1):
        for chunk in (0, 1):
            run.log(
                shard,
                Kind.CHUNK_FETCHED,
                sender=0,
                incarnation=1,
                sequence=1,
                chunk=chunk,
                vector=TRAINED,
            )
        run.note(0, ReplicaKind.FETCHED, number=1, shard=shard, shard_incarnation=1, version=0)
    return run


RUNS = [a_quiet_run, a_run_with_a_rollback, a_run_with_a_death, a_recorded_run]


@pytest.mark.parametrize("make", RUNS)
def test_a_run_that_kept_its_promises_is_clean(make: Callable[[], LoggedRun]) -> None:
    assert violated(make()) == set()


def test_torn_reads_are_checkable_only_with_a_record() -> None:
    assert findings(a_quiet_run())["5"].verdict is Verdict.NOT_CHECKABLE
    assert findings(a_recorded_run())["5"].verdict is Verdict.HELD


def test_sandblaster_is_not_applicable_to_downpour() -> None:
    assert findings(a_quiet_run())["3"].verdict is Verdict.NOT_APPLICABLE


def _double_a_record(run: LoggedRun) -> None:
    records = run.shards[0, 1]
    records.append(dict(records[-1]) | {"version": records[-1]["version"] + 1, "staleness": 1})


def _forget_a_record(run: LoggedRun) -> None:
    del run.shards[0, 1][5]


def _let_a_version_go_back(run: LoggedRun) -> None:
    run.shards[1, 1][-1]["version"] = 2


def _show_a_client_an_older_version(run: LoggedRun) -> None:
    run.replicas[0, 1][-1]["version"] = 1


def _invent_an_acknowledgement(run: LoggedRun) -> None:
    run.note(0, ReplicaKind.ACKNOWLEDGED, number=99, shard=0, shard_incarnation=1, version=99)


def _forget_an_acknowledgement(run: LoggedRun) -> None:
    del run.replicas[1, 1][0]


def _claim_lost_updates(run: LoggedRun) -> None:
    run.summary["updatesLost"] = 1
    run.summary["updatesLostBySender"] = {"replica-0": 1}


def _claim_too_many_samples(run: LoggedRun) -> None:
    run.summary["samples"] += 8


def _hide_samples(run: LoggedRun) -> None:
    run.summary["samples"] -= 8


def _claim_an_epoch(run: LoggedRun) -> None:
    run.train_samples, run.summary["epochs"] = 1000, 1


def _hide_a_bad_gradient(run: LoggedRun) -> None:
    run.note(0, ReplicaKind.NOT_FINITE, number=3, samples=0)


def _refuse_without_a_reason(run: LoggedRun) -> None:
    run.log(0, Kind.REFUSED, sender=0, incarnation=1, sequence=5)


def _damage_a_checkpoint(run: LoggedRun) -> None:
    run.checkpoints.append(SavedCheckpoint(number=1, versions={}, damage="its hash is another"))


def _lie_about_staleness(run: LoggedRun) -> None:
    run.shards[0, 1][-1]["staleness"] = 7


LIES_IN_A_QUIET_RUN = [
    (_double_a_record, {"2"}),
    (_forget_a_record, {"1", "4"}),
    (_let_a_version_go_back, {"4"}),
    (_show_a_client_an_older_version, {"4"}),
    (_invent_an_acknowledgement, {"1"}),
    (_forget_an_acknowledgement, {"1"}),
    (_claim_lost_updates, {"1"}),
    (_claim_too_many_samples, {"sa"}),
    (_hide_samples, {"sa"}),
    (_claim_an_epoch, {"sa"}),
    (_hide_a_bad_gradient, {"6"}),
    (_refuse_without_a_reason, {"6"}),
    (_damage_a_checkpoint, {"6"}),
    (_lie_about_staleness, {"4"}),
]


@pytest.mark.parametrize(("lie", "promises"), LIES_IN_A_QUIET_RUN)
def test_a_lie_is_found(lie: Callable[[LoggedRun], None], promises: set[str]) -> None:
    run = a_quiet_run()

    lie(run)

    assert promises <= violated(run)


def test_processes_of_a_replica_are_not_equally_far_when_one_dies() -> None:
    """The one that lives has pushed once more, and the other has not read its last answer."""
    run = a_quiet_run()
    last = run.shards[1, 1].pop()
    assert (last["sender"], last["sequence"]) == (1, 4)
    unread = {(1, 3), (1, 4)}
    run.replicas[1, 1] = [
        record for record in run.replicas[1, 1] if (record["shard"], record["number"]) not in unread
    ]
    evidence = run.evidence()
    assert "shard-1 to push 3, but went on" in str(audit.audit(evidence)[0])

    def found(*processes: set[int]) -> Finding:
        shards = tuple(map(frozenset, processes))
        of_several = tuple(replace(each, shards=shards) for each in evidence.replicas[1])
        replicas = {**evidence.replicas, 1: of_several}
        return audit.audit(replace(evidence, replicas=replicas))[0]

    assert found({0}, {1}).verdict is Verdict.HELD
    assert found({1}, {0}, set()).verdict is Verdict.HELD
    assert "shard-1 to push 3, but went on" in str(found({0}, set()))
    assert "shard-1 to push 3, but went on" in str(found({0, 1}))


def test_steps_that_were_given_up_together_count_as_one_gradient() -> None:
    run = a_quiet_run()
    for number in (3, 3, 3, 8):
        run.note(0, ReplicaKind.NOT_FINITE, number=number, samples=0)
    run.summary["nonFiniteGradients"] = 2
    run.summary["nonFiniteGradientsByReplica"] = {"replica-0": 2}
    assert violated(run) == set()


def test_an_update_that_survives_twice_over_a_rollback_is_found() -> None:
    run = a_run_with_a_rollback()
    kept = next(r for r in run.shards[0, 1] if r.get("version") == 5)
    run.shards[0, 2].append(kept | {"version": 8, "shard_incarnation": 2, "staleness": -1})

    assert "2" in violated(run)


def test_an_update_lost_in_a_rollback_may_be_pushed_again() -> None:
    run = a_quiet_run()
    run.restart_shard(0, version=7, lost={1: 1})
    run.apply_again(0, 1)
    run.push(1)

    assert violated(run) == set()


def _claim(run: LoggedRun, incarnation: int, more: int, doubtful: int = 0) -> None:
    """Incarnation `incarnation` of shard 0 says so many more of replica 1's updates are lost."""
    for record in run.shards[0, incarnation]:
        if record["kind"] == Kind.LOST and record["sender"] == 1:
            record["samples"] += more
            record["sequence"] = doubtful
    run.summary["updatesLost"] += more
    run.summary["updatesLostBySender"]["replica-1"] += more


def test_a_push_that_was_counted_but_not_logged_before_kill_9_is_lost_too() -> None:
    run = a_quiet_run()
    run.restart_shard(0, version=5, lost={0: 1, 1: 2})
    _claim(run, 2, more=1, doubtful=5)
    run.push(0)
    assert violated(run) == set()


def test_a_push_that_came_again_and_is_called_lost_nevertheless_is_found() -> None:
    run = a_run_with_a_rollback()
    _claim(run, 2, more=1, doubtful=5)
    assert violated(run) == {"1"}


def test_one_lost_update_too_many_is_found() -> None:
    run = a_run_with_a_rollback()
    _claim(run, 2, more=1, doubtful=4)
    assert violated(run) == {"1"}


def test_a_second_rollback_reports_the_losses_of_both() -> None:
    run = a_run_with_a_rollback()
    run.restart_shard(0, version=5, lost={0: 1, 1: 1})
    run.push(0)
    assert violated(run) == set()
    _claim(run, 3, more=-1)
    assert violated(run) == {"1"}


def test_an_incarnation_that_was_killed_before_it_told_anything_need_not_report() -> None:
    run = a_run_with_a_rollback()
    run.restart_shard(0, version=5, lost={0: 1, 1: 1})
    run.shards[0, 3].clear()
    run.log(0, Kind.RESTORED, version=5)
    run.restart_shard(0, version=5, lost={})
    assert violated(run) == set()


def test_one_lost_update_too_few_in_the_summary_is_found() -> None:
    run = a_run_with_a_rollback()
    run.summary["updatesLost"] -= 1
    run.summary["updatesLostBySender"]["replica-1"] -= 1
    assert violated(run) == {"1"}


def test_losses_that_a_shard_does_not_report_are_found() -> None:
    run = a_run_with_a_rollback()
    run.shards[0, 2] = [record for record in run.shards[0, 2] if record["kind"] != Kind.LOST]

    assert "1" in violated(run)


def test_a_summary_with_fewer_losses_than_the_shards_report_is_found() -> None:
    run = a_run_with_a_rollback()
    run.summary["updatesLost"] = 1
    run.summary["updatesLostBySender"] = {"replica-1": 1}

    assert "1" in violated(run)


def test_a_late_update_of_a_fenced_replica_is_found() -> None:
    run = a_run_with_a_death()
    late = next(r for r in run.shards[1, 1] if r["kind"] == Kind.PUSHED and r["sender"] == 1)
    version = run.shards[1, 1][-1]["version"] + 1
    run.shards[1, 1].append(late | {"sequence": 5, "version": version, "read_version": version - 1})

    assert violated(run) >= {"8"}


def test_a_zombie_that_a_rollback_lets_in_again_is_found() -> None:
    run = a_run_with_a_death()
    run.restart_shard(0, version=10, lost={})
    run.log(0, Kind.PUSHED, sender=1, incarnation=1, sequence=5, version=11, staleness=-1)

    assert "8" in violated(run)


def test_samples_are_accounted_for_exactly_after_a_rollback() -> None:
    run = a_run_with_a_rollback()
    run.summary["samples"] -= 8
    assert violated(run) == {"sa"}


def test_what_a_rollback_hides_of_the_dead_may_be_left_out_but_no_more() -> None:
    run = a_run_with_a_rollback()
    run.fence(1)
    run.join(1, 2)
    run.push(1)
    run.summary["samples"] -= 16
    assert violated(run) == set()
    run.summary["samples"] -= 8
    assert violated(run) == {"sa"}


def test_two_incarnations_of_a_shard_that_write_at_once_are_found() -> None:
    run = a_run_with_a_rollback()
    run.shards[0, 1][-1]["time_ns"] = run.now + SECOND

    assert "8" in violated(run)


def test_a_pause_of_more_than_a_minute_after_a_death_is_found() -> None:
    run = a_quiet_run()
    run.restart_shard(0, version=8, lost={})
    run.push(0, seconds=61.0)

    assert violated(run) == {"7"}


def test_a_pause_says_nothing_where_a_push_may_take_longer() -> None:
    run = a_quiet_run()
    run.restart_shard(0, version=8, lost={})
    run.push(0, seconds=61.0)
    found = recovery.check(replace(run.evidence(), pushes_seldom=True))

    assert found.verdict is Verdict.NOT_CHECKABLE
    assert "local steps of a push may take longer" in found.evidence


def test_a_job_that_was_told_to_end_may_rest_as_long_as_somebody_likes() -> None:
    run = a_quiet_run()
    for shard in (0, 1):
        run.log(shard, Kind.STOPPED, version=8)
    run.note(0, ReplicaKind.LEFT)
    run.join(0, 2)
    for shard in (0, 1):
        run.restart_shard(shard, version=8, lost={})
    run.summary["restarts"]["replica"] = 1
    run.push(0, seconds=3600.0)

    assert not violated(run)


def test_a_chunk_that_was_never_given_is_found() -> None:
    run = a_recorded_run()
    run.push(0)
    run.shards[0, 1] = [
        r for r in run.shards[0, 1] if r["kind"] != Kind.CHUNK_FETCHED or r["chunk"] == 0
    ]
    run.log(
        0,
        Kind.CHUNK_FETCHED,
        sender=0,
        incarnation=1,
        sequence=2,
        chunk=1,
        vector=TRAINED,
    )

    assert violated(run) == {"5"}


@pytest.mark.parametrize("vectors", [(3, 3), (TRAINED, 3)])
def test_a_fetch_of_a_prediction_is_whole_or_torn(vectors: Sequence[int]) -> None:
    run = a_recorded_run()
    for log in (run.shards[0, 1], run.shards[1, 1]):
        given = [number for number, r in enumerate(log) if r["kind"] == Kind.CHUNK_FETCHED]
        for number, vector in zip(given, vectors, strict=True):
            log[number]["vector"] = vector
    known = replace(run.evidence(), fetched_vectors=frozenset({TRAINED, 3}))

    is_torn = torn_reads.check(known).verdict is Verdict.VIOLATED

    assert is_torn == (len(set(vectors)) > 1)
    if not is_torn:
        assert violated(run) == {"5"}, "nobody computes with vector 3"


def test_a_fetch_of_a_version_that_never_was_is_found() -> None:
    run = a_recorded_run()
    run.replicas[0, 1][-1]["version"] = 3

    assert violated(run) == {"5"}


def test_a_push_partly_applied_by_the_dead_is_accounted_for() -> None:
    run = a_run_with_a_death()
    version = run.shards[0, 1][-1]["version"]
    fence = next(i for i, r in enumerate(run.shards[0, 1]) if r["kind"] == Kind.FENCED)
    partial = {
        "time_ns": run.shards[0, 1][fence]["time_ns"],
        "kind": int(Kind.PUSHED),
        "shard_incarnation": 1,
        "sender": 1,
        "incarnation": 1,
        "sequence": 5,
        "version": 9,
        "read_version": 8,
        "read_incarnation": 1,
        "samples": 8,
    }
    run.shards[0, 1].insert(fence, partial)
    for record in run.shards[0, 1][fence + 1 :]:
        if record["kind"] == Kind.PUSHED:
            record["version"] += 1
            record["read_version"] += 1
    assert run.shards[0, 1][-1]["version"] == version + 1
    run.summary["samplesPartiallyApplied"] = 8

    assert violated(run) == set()


def test_a_log_that_lacks_records_is_named_and_puts_the_others_in_doubt() -> None:
    run = a_quiet_run()
    run.shards[0, 1].remove(run.shards[0, 1][5])
    run.log(0, Kind.MISSING, samples=1)
    run.note(1, ReplicaKind.MISSING, samples=0)

    assert violated(run) == set()
    found = findings(run)
    assert found["lo"].verdict is Verdict.NOT_WHOLE
    assert found["lo"].violations == (
        "the log of shard-0 (incarnation 1) lacks 1 records: its disk was full",
    )
    assert found["4"].verdict is Verdict.NOT_CHECKABLE
    assert found["4"].violations
    assert found["8"].verdict is Verdict.HELD


def test_an_incarnation_without_a_log_is_named() -> None:
    run = a_run_with_a_rollback()
    del run.shards[0, 2]
    assert findings(run)["lo"].violations == ("shard-0 (incarnation 2) answered, but has no log",)

    run = a_run_with_a_death()
    del run.replicas[1, 2]
    found = findings(run)
    assert found["lo"].violations == ("replica-1 (incarnation 2) pushed, but has no log",)
    said = {key for key, one in found.items() if LACKS in one.evidence}
    # What compares logs of shards alone is checked as ever.
    assert said == {"1", "4", "5", "6", "7", "fi", "sa"} - not_applicable(found)


def test_of_a_joiner_without_a_log_it_is_said_how_to_give_it() -> None:
    run = a_run_with_a_death()
    del run.replicas[1, 2]

    found = {one.promise: one for one in audit.audit(replace(run.evidence(), joiners_from=1))}

    (said,) = found[logs.PROMISE].violations
    assert said.endswith("it joined from elsewhere, give its output folder with --ledger")
    own = {one.promise: one for one in audit.audit(replace(run.evidence(), joiners_from=2))}
    assert "--ledger" not in own[logs.PROMISE].violations[0]


LACKS = "without the log of replica-1 (incarnation 2)"


def not_applicable(found: dict[str, Finding]) -> set[str]:
    return {key for key, one in found.items() if one.verdict is Verdict.NOT_APPLICABLE}


def test_a_log_that_ends_in_half_a_record_is_named() -> None:
    evidence = a_quiet_run().evidence()
    whole = evidence.replicas[1][0]
    half = replace(
        evidence, replicas={**evidence.replicas, 1: (replace(whole, ends_in_half=True),)}
    )
    assert logs.check(half).violations == (
        "the log of replica-1 (incarnation 1) ends in half a record",
    )


def test_counts_that_are_at_least_so_many_may_be_fewer_but_never_more() -> None:
    run = a_run_with_a_rollback()
    for log in run.shards.values():
        for record in log:
            if record["kind"] == Kind.LOST and record["sender"] == 1:
                record["samples"] -= 1
    run.summary["updatesLost"] -= 1
    run.summary["updatesLostBySender"]["replica-1"] -= 1
    assert violated(run) == {"1"}
    run.summary["updatesLostIsExact"] = False
    assert violated(run) == set()
    run.summary["updatesLost"] += 9
    run.summary["updatesLostBySender"]["replica-1"] += 9
    assert violated(run) == {"1"}


def answers_left_out(numbers: set[int], *, is_running: bool) -> Evidence:
    """A quiet run in which replica 0 was not told of these pushes."""
    evidence = a_quiet_run().evidence()
    (incarnation,) = evidence.replicas[0]
    is_told = incarnation.records["kind"] == ReplicaKind.ACKNOWLEDGED
    left_out = is_told & np.isin(incarnation.records["number"], list(numbers))
    shorter = replace(incarnation, records=incarnation.records[~left_out])
    replicas = {**evidence.replicas, 0: (shorter,)}
    return replace(evidence, is_running=is_running, replicas=replicas)


def test_while_a_run_goes_on_the_answers_to_its_last_pushes_may_be_missing() -> None:
    assert audit.is_clean(audit.audit(answers_left_out({3, 4}, is_running=True)))
    assert not audit.is_clean(audit.audit(answers_left_out({3, 4}, is_running=False)))
    assert not audit.is_clean(audit.audit(answers_left_out({2}, is_running=True)))
