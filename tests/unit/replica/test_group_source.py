from concurrent.futures import Future

import pytest

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import NO_PROGRESS, Lease, MemberId
from disttrain.coordinator.protocol.messages import GroupLease, RefusalReason, Refused, Work
from disttrain.replica.halt import Halt, Halted
from disttrain.replica.held_groups import HeldGroups
from disttrain.replica.requested_work import GroupSource
from disttrain.transport.header import Role

WAITING = Work(wait=True, after_seconds=0.001)


class Coordinator:
    """Answers requests from a list; the rest stays unanswered."""

    def __init__(self, *replies: messages.Reply) -> None:
        self._replies = list(replies)
        self.requests: list[messages.RequestWork] = []

    def request(self, request: messages.Request) -> Future[messages.Reply]:
        assert isinstance(request, messages.RequestWork)
        self.requests.append(request)
        future: Future[messages.Reply] = Future()
        if self._replies:
            future.set_result(self._replies.pop(0))
        return future


def work(*attempts: int) -> Work:
    """Each attempt is at a group of two portions."""
    groups = [
        GroupLease(attempt=n, group=n, evaluation=1, portions=(2 * n, 2 * n + 2), shards=(1,))
        for n in attempts
    ]
    return Work(groups=tuple(groups), wait=True)


def a_source(
    coordinator: Coordinator, held: HeldGroups | None = None, halt: Halt | None = None
) -> GroupSource:
    member = MemberId(role=Role.REPLICA, index=0, incarnation=1)
    return GroupSource(
        coordinator, member, held or HeldGroups(), lambda: NO_PROGRESS, lambda _: 8, halt or Halt()
    )


def test_a_group_is_given_out_portion_by_portion() -> None:
    source = a_source(Coordinator(work(3)))

    portions = [source.next_within(20) for _ in range(2)]

    assert portions == [
        Lease(id=1, epoch=0, portion=6, first=0, end=8),
        Lease(id=1, epoch=0, portion=7, first=0, end=8),
    ]
    assert source.next_now() is None


def test_the_next_group_is_asked_for_while_one_is_computed() -> None:
    coordinator = Coordinator(work(1), work(2), work(3))
    source = a_source(coordinator)

    for _ in range(4):
        source.next_within(20)

    assert [request.attempts for request in coordinator.requests] == [(), (1,)]


def test_portions_of_a_group_that_was_dropped_are_not_given_out() -> None:
    held = HeldGroups()
    coordinator = Coordinator(work(1), WAITING, work(1), WAITING)
    source = a_source(coordinator, held)
    source.next_within(20)
    held.drop(evaluation=1)

    portions = [source.next_within(20) for _ in range(2)]

    assert [portion.portion for portion in portions if portion is not None] == [2, 3]
    assert [request.attempts for request in coordinator.requests][:3] == [(), (1,), ()]


def test_work_that_comes_after_waiting_is_taken() -> None:
    source = a_source(Coordinator(WAITING, WAITING, work(5)))

    portion = source.next_within(20)

    assert portion is not None
    assert portion.portion == 10


def test_the_wait_for_room_ends_with_the_process() -> None:
    halt = Halt()
    source = a_source(Coordinator(work(1), work(2)), halt=halt)
    for _ in range(4):
        source.next_within(20)

    halt.say()
    with pytest.raises(Halted):
        source.next_within(20)


@pytest.mark.parametrize(
    "end", [Work(), Refused(reason=RefusalReason.ENDED, message="the job is over")]
)
def test_the_end_of_the_work_is_the_end(end: messages.Reply) -> None:
    assert a_source(Coordinator(end)).next_within(20) is None
