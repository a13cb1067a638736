"""Epochs are whole only if every sample of every portion was in some update."""

from builders.ledgers import LoggedRun
from disttrain.audit import coverage
from disttrain.audit.finding import Verdict
from disttrain.replica.ledger import Kind


def an_epoch(*, portion_of_the_second_lease: int, push_every: int = 1) -> LoggedRun:
    """One replica, two portions of 16 samples, batches of 8."""
    run = LoggedRun(shards=2, replicas=1)
    run.train_samples = 32
    run.summary["epochs"] = 1
    for lease, portion in ((1, 0), (2, portion_of_the_second_lease)):
        run.note(0, Kind.LEASE_BEGUN, lease=lease, portion=portion, samples=8)
    if push_every == 1:
        for lease in (1, 2):
            run.push(0, lease=lease, lease_offset=8)
            run.push(0, lease=lease, lease_offset=16)
    else:
        run.push(0, lease=1, lease_offset=8)
        run.push(0, samples=16, lease=2, lease_offset=8)
        run.push(0, lease=2, lease_offset=16)
    return run


def test_an_epoch_with_every_sample_is_whole() -> None:
    finding = coverage.check(an_epoch(portion_of_the_second_lease=1).evidence())

    assert finding.verdict is Verdict.HELD
    assert finding.evidence.startswith("1 epochs")


def test_a_push_may_carry_the_end_of_the_lease_before() -> None:
    run = an_epoch(portion_of_the_second_lease=1, push_every=2)

    assert coverage.check(run.evidence()).verdict is Verdict.HELD


def test_a_portion_done_twice_does_not_make_up_for_another() -> None:
    run = an_epoch(portion_of_the_second_lease=0)

    assert coverage.check(run.evidence()).verdict is Verdict.VIOLATED


def test_samples_without_a_finite_gradient_count_as_processed() -> None:
    run = an_epoch(portion_of_the_second_lease=1)
    for shard in (0, 1):
        run.shards[shard, 1].pop()
    run.note(0, Kind.NOT_FINITE, lease=2, lease_offset=16, samples=8)

    assert coverage.check(run.evidence()).verdict is Verdict.HELD


def over_three_leases(*, samples: int) -> LoggedRun:
    """One push of an epoch of three portions, of 16, 16 and 8 samples."""
    run = LoggedRun(shards=2, replicas=1)
    run.train_samples = 40
    run.summary["epochs"] = 1
    for lease, number in ((1, 16), (2, 16), (3, 8)):
        run.note(0, Kind.LEASE_BEGUN, lease=lease, portion=lease, samples=8, number=number)
    run.push(0, lease=1, lease_offset=8)
    run.push(0, samples=samples, lease=3, lease_offset=8)
    return run


def test_a_push_may_carry_whole_leases() -> None:
    found = coverage.check(over_three_leases(samples=8 + 16 + 8).evidence())

    assert found.verdict is Verdict.HELD
    assert found.evidence.startswith("1 epochs")


def test_leases_of_which_some_samples_are_in_no_push_are_not_guessed_at() -> None:
    found = coverage.check(over_three_leases(samples=8 + 8 + 8).evidence())

    assert found.verdict is Verdict.NOT_CHECKABLE


def test_a_push_over_many_leases_is_not_guessed_at() -> None:
    run = an_epoch(portion_of_the_second_lease=1)
    run.note(0, Kind.LEASE_BEGUN, lease=3, portion=1, samples=8)
    run.note(0, Kind.LEASE_BEGUN, lease=4, portion=1, samples=8)
    run.push(0, samples=24, lease=4, lease_offset=8)

    assert coverage.check(run.evidence()).verdict is Verdict.NOT_CHECKABLE
