from disttrain.coordinator.protocol.fields import START, Position
from disttrain.replica.lost_leases import LostLeases
from disttrain.replica.work import WorkItem


def a_batch(lease: int) -> WorkItem:
    return WorkItem(lease, 0, 0, 0, 8, [0])


def test_batches_of_a_lease_that_others_have_are_skipped() -> None:
    lost = LostLeases(lambda: {3})

    assert lost.skips(a_batch(3), START)
    assert not lost.skips(a_batch(4), START)


def test_where_a_lost_lease_ended_is_told_once() -> None:
    lost = LostLeases(lambda: {3, 4})

    lost.skips(a_batch(3), Position(lease=3, offset=16))
    lost.skips(a_batch(3), Position(lease=3, offset=16))
    lost.skips(a_batch(4), Position(lease=3, offset=16))

    assert lost.abandoned == (Position(lease=3, offset=16), Position(lease=4, offset=0))


def test_what_the_coordinator_has_heard_is_told_no_more() -> None:
    named = {3}
    lost = LostLeases(lambda: named)
    assert lost.skips(a_batch(3), START)
    named.clear()

    assert lost.skips(a_batch(3), START), "batches of it that were prepared may still follow"
    assert not lost.skips(a_batch(4), START)

    assert lost.abandoned == ()


def test_what_the_coordinator_has_not_heard_is_told_again() -> None:
    lost = LostLeases(lambda: {3})
    lost.skips(a_batch(3), START)

    assert not lost.skips(a_batch(4), START)

    assert lost.abandoned == (Position(lease=3),)


def test_a_lost_lease_is_told_as_given_up_when_its_pushes_are_answered() -> None:
    lost = LostLeases(lambda: {3, 4})
    lost.abandoned = (Position(lease=3, offset=8), Position(lease=4, offset=0))
    assert lost.given_up(Position(lease=3, offset=4)) == lost.abandoned[1:]
    assert lost.given_up(Position(lease=3, offset=8)) == lost.abandoned
