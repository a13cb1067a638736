import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import NO_PROGRESS, START, Lease, MemberId, Position
from disttrain.coordinator.protocol.messages import RefusalReason, Refused, Work
from disttrain.replica.cancellation import Cancellation, Cancelled
from disttrain.replica.work import HeldLeases, LostLeases, WorkItem, WorkSource
from disttrain.transport.header import Role


class Coordinator:
    """Answers requests from a list; the rest stays unanswered."""

    def __init__(self, *replies: messages.Reply) -> None:
        self._replies = list(replies)
        self.requests: list[messages.RequestWork] = []
        self._open: list[Future[messages.Reply]] = []

    def request(self, request: messages.Request) -> Future[messages.Reply]:
        assert isinstance(request, messages.RequestWork)
        self.requests.append(request)
        future: Future[messages.Reply] = Future()
        if self._replies:
            future.set_result(self._replies.pop(0))
        else:
            self._open.append(future)
        return future

    def answer(self, reply: messages.Reply) -> None:
        """To what was asked last and has no answer."""
        self._open.pop().set_result(reply)


def a_lease(number: int) -> Lease:
    return Lease(id=number, epoch=0, portion=0, first=0, end=8)


def a_source(
    coordinator: Coordinator,
    cancellation: Cancellation | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> WorkSource:
    held = HeldLeases(MemberId(role=Role.REPLICA, index=0, incarnation=1), lambda: NO_PROGRESS)
    return WorkSource(coordinator.request, held, cancellation or Cancellation(), clock)


def numbers(source: WorkSource, count: int) -> list[int]:
    leases = [source.next_within(20) for _ in range(count)]
    return [lease.id for lease in leases if lease is not None]


def test_the_next_lease_is_asked_for_while_one_is_computed() -> None:
    coordinator = Coordinator(Work(leases=(a_lease(1),)), Work(leases=(a_lease(2),)))
    source = a_source(coordinator)

    assert numbers(source, 1) == [1]
    assert [request.last_lease for request in coordinator.requests] == [0, 1]
    assert [request.held for request in coordinator.requests] == [0, 1]


def test_a_lease_that_was_sent_twice_is_taken_once() -> None:
    again = Work(leases=(a_lease(1), a_lease(2)))
    source = a_source(Coordinator(Work(leases=(a_lease(1),)), again, Work()))

    assert numbers(source, 3) == [1, 2]


def test_it_is_dry_while_the_coordinator_has_nothing_yet() -> None:
    coordinator = Coordinator(Work(wait=True, after_seconds=0.001))
    source = a_source(coordinator)

    assert source.next_within(0) is None
    assert not source.dry
    assert source.next_within(0) is None
    assert source.dry

    assert source.next_within(0.01) is None
    coordinator.answer(Work(leases=(a_lease(1),)))
    assert numbers(source, 1) == [1]
    assert not source.dry


def test_it_is_not_dry_when_what_was_given_since_is_computed() -> None:
    """A push that accrues several steps would go early."""
    coordinator = Coordinator(Work(leases=(a_lease(1),)), Work(wait=True, after_seconds=0.001))
    source = a_source(coordinator)
    assert numbers(source, 1) == [1]
    assert source.next_now() is None

    assert not source.dry
    assert source.next_within(0) is None
    assert source.dry


def test_it_asks_again_no_sooner_than_it_was_told() -> None:
    now = [0.0]
    coordinator = Coordinator(Work(wait=True, after_seconds=5))
    source = a_source(coordinator, clock=lambda: now[0])
    source.next_now()

    for now[0] in (0.1, 5.0):
        source.next_now()
        assert len(coordinator.requests) == 1
    now[0] = 5.2
    source.next_now()
    assert len(coordinator.requests) == 2


def test_a_wait_ends_with_the_process() -> None:
    cancellation = Cancellation()
    source = a_source(Coordinator(), cancellation)

    cancellation.cancel()
    with pytest.raises(Cancelled):
        source.next_within(20)


def test_work_that_comes_after_waiting_is_taken() -> None:
    nothing = Work(wait=True, after_seconds=0.001)
    source = a_source(Coordinator(nothing, nothing, Work(leases=(a_lease(5),))))

    assert numbers(source, 1) == [5]
    assert not source.dry


@pytest.mark.parametrize(
    "end", [Work(), Refused(reason=RefusalReason.ENDED, message="the job is over")]
)
def test_it_ends_when_there_will_be_no_more(end: messages.Reply) -> None:
    source = a_source(Coordinator(Work(leases=(a_lease(1),)), end))

    assert numbers(source, 1) == [1]
    assert source.next_within(20) is None


def test_an_answer_that_comes_after_the_end_does_not_begin_it_anew() -> None:
    coordinator = Coordinator()
    source = a_source(coordinator)
    assert source.next_now() is None

    source.end()
    coordinator.answer(Work(wait=True, after_seconds=0.001))

    assert source.next_within(20) is None
    assert len(coordinator.requests) == 1


def test_nothing_is_waited_for_when_asked_for_what_is_held() -> None:
    assert a_source(Coordinator()).next_now() is None


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
