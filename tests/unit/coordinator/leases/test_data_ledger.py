"""The account of the data, one story per test: 32 samples in portions of 8, batches of 4."""

from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol.fields import Lease, MemberId, Position, Progress
from disttrain.coordinator.strategies import downpour
from disttrain.job.stop import Stop
from disttrain.transport.header import Role

ANY = Stop(epochs=10)


def _ledger() -> DataLedger:
    ledger = DataLedger(seed=1, samples=32, portion_size=8, batch_size=4)
    ledger.open_epoch()
    return ledger


def _replica(index: int, incarnation: int = 1) -> MemberId:
    return MemberId(role=Role.REPLICA, index=index, incarnation=incarnation)


def _grant(ledger: DataLedger, member: MemberId, stop: Stop = ANY) -> Lease:
    lease = downpour.next_lease(ledger, member.index, stop)
    assert lease is not None
    ledger.grant(member, lease)
    return lease


def _at(lease: Lease, offset: int, *abandoned: Position) -> Progress:
    return Progress(position=Position(lease=lease.id, offset=offset), abandoned=abandoned)


def test_a_portion_is_done_when_its_end_is_acknowledged() -> None:
    ledger, member = _ledger(), _replica(0)
    lease = _grant(ledger, member)
    ledger.advance(member, _at(lease, 4))
    assert (ledger.samples_done, ledger.steps_done, ledger.portions_done) == (4, 1, 0)
    ledger.advance(member, _at(lease, 8))
    assert (ledger.samples_done, ledger.steps_done, ledger.portions_done) == (8, 2, 1)


def test_an_old_position_changes_nothing() -> None:
    ledger, member = _ledger(), _replica(0)
    lease = _grant(ledger, member)
    for offset in (8, 4, 0, 8):
        ledger.advance(member, _at(lease, offset))
    assert (ledger.samples_done, ledger.samples_repeated) == (8, 0)


def test_a_position_in_a_later_lease_completes_the_earlier_ones() -> None:
    ledger, member = _ledger(), _replica(0)
    _grant(ledger, member)
    second = _grant(ledger, member)
    ledger.advance(member, _at(second, 4))
    assert ledger.samples_done == 12


def test_the_dead_replicas_rest_goes_to_others_and_partial_pushes_are_repeats() -> None:
    ledger, dead, other = _ledger(), _replica(0), _replica(1)
    lease = _grant(ledger, dead)
    lowest, highest = Position(lease=lease.id, offset=4), Position(lease=lease.id, offset=8)
    ledger.reconcile(dead, lowest, highest)
    assert (ledger.samples_done, ledger.samples_partially_applied) == (4, 4)
    assert (ledger.portions_requeued, ledger.samples_requeued) == (1, 4)
    again = _grant(ledger, other)
    assert (again.portion, again.first, again.end) == (lease.portion, 4, 8)
    ledger.advance(other, _at(again, 4))
    assert (ledger.samples_done, ledger.samples_repeated, ledger.portions_done) == (8, 4, 1)


def test_what_a_silent_replica_did_late_is_not_given_out_again() -> None:
    ledger, silent = _ledger(), _replica(0)
    lease = _grant(ledger, silent)
    ledger.expire(silent)
    ledger.advance(silent, _at(lease, 0, Position(lease=lease.id, offset=8)))
    assert (ledger.samples_done, ledger.samples_repeated) == (8, 0)
    left = [_grant(ledger, _replica(1)).portion for _ in range(3)]
    assert lease.portion not in left
    assert downpour.next_lease(ledger, 1, ANY) is None


def test_what_a_silent_replica_did_after_somebody_else_is_a_repeat() -> None:
    ledger, silent, other = _ledger(), _replica(0), _replica(1)
    lease = _grant(ledger, silent)
    ledger.expire(silent)
    again = _grant(ledger, other)
    assert again.portion == lease.portion
    ledger.advance(other, _at(again, 8))
    ledger.advance(silent, _at(lease, 0, Position(lease=lease.id, offset=4)))
    assert (ledger.samples_done, ledger.samples_repeated) == (8, 4)
    assert ledger.held(silent) == []


def test_a_replica_keeps_its_portions_over_the_epochs() -> None:
    ledger = _ledger()
    first: dict[int, set[int]] = {0: set(), 1: set()}
    for index in (0, 1, 0, 1):
        lease = _grant(ledger, _replica(index))
        first[index].add(lease.portion)
        ledger.advance(_replica(index), _at(lease, 8))
    assert ledger.epochs_done == 1
    assert ledger.epochs == {}
    ledger.open_epoch()
    for index in (1, 1, 0, 0):
        assert _grant(ledger, _replica(index)).portion in first[index]


def test_a_replica_without_portions_takes_from_the_one_with_most() -> None:
    ledger = _ledger()
    for _ in range(4):
        ledger.advance(_replica(0), _at(_grant(ledger, _replica(0)), 8))
    ledger.open_epoch()
    assert _grant(ledger, _replica(1)).epoch == 1


def test_a_stop_by_samples_is_met_exactly() -> None:
    ledger, member, stop = _ledger(), _replica(0), Stop(samples=13)
    leases = [_grant(ledger, member, stop) for _ in range(2)]
    assert [lease.samples for lease in leases] == [8, 5]
    assert downpour.next_lease(ledger, 0, stop) is None
    assert not downpour.may_open_epoch(ledger, stop)


def test_a_stop_by_samples_is_met_though_a_silent_replica_goes_on() -> None:
    ledger, silent, other, stop = _ledger(), _replica(0), _replica(1), Stop(samples=48)
    for member in (silent, other, silent, other):
        ledger.advance(member, _at(_grant(ledger, member, stop), 8))
    ledger.open_epoch()
    late, own = _grant(ledger, silent, stop), _grant(ledger, other, stop)
    ledger.expire(silent)

    again = _grant(ledger, other, stop)
    assert (again.epoch, again.portion) == (late.epoch, late.portion) != (own.epoch, own.portion)
    assert downpour.next_lease(ledger, 1, stop) is None
    ledger.advance(silent, _at(late, 8))
    ledger.advance(other, _at(again, 8))
    assert (ledger.samples_done, ledger.samples_repeated) == (48, 8)


def test_a_stop_by_steps_counts_those_under_way_and_those_returned() -> None:
    ledger, member, stop = _ledger(), _replica(0), Stop(steps=3)
    _grant(ledger, member, stop)
    second = _grant(ledger, member, stop)
    assert second.samples == 4
    assert downpour.next_lease(ledger, 0, stop) is None
    ledger.finish(member, Progress(position=Position(lease=1, offset=4)), at_end=True)
    assert ledger.steps_done == 1
    assert downpour.remaining_samples(ledger, stop) == 8


def test_leases_whose_answer_was_lost_are_given_again() -> None:
    ledger, member = _ledger(), _replica(0)
    one, two = _grant(ledger, member), _grant(ledger, member)
    assert downpour.unseen(ledger.held(member), last_lease=0) == [one, two]
    assert downpour.unseen(ledger.held(member), last_lease=one.id) == [two]


def test_a_fast_replica_holds_more_leases_ahead() -> None:
    assert downpour.leases_ahead(128, 0.0) == 2
    assert downpour.leases_ahead(128, 1024.0) == 4
    assert downpour.leases_ahead(32, 1e9) == 8
