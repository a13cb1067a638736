"""The groups that a replica holds, and how it asks for further ones."""

import threading
from concurrent.futures import Future

import pytest

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import NO_PROGRESS, Lease, MemberId
from disttrain.coordinator.protocol.messages import GroupLease, RefusalReason, Refused, Work
from disttrain.replica import groups
from disttrain.replica.cancellation import Cancellation, Cancelled
from disttrain.replica.groups import HeldGroups
from disttrain.replica.work import WorkSource
from disttrain.transport.header import Role

WAITING = Work(wait=True, after_seconds=0.001)


def held_groups() -> HeldGroups:
    member = MemberId(role=Role.REPLICA, index=0, incarnation=1)
    return HeldGroups(member, lambda: NO_PROGRESS, lambda _: 8)


def take(held: HeldGroups, group: GroupLease) -> int | None:
    """The number under which a group is taken in; None if it is not."""
    held.hold(Work(groups=(group,)))
    first, second = held.take(), held.take()
    assert held.take() is None
    assert first is None or (second is not None and first.id == second.id)
    return None if first is None else first.id


def a_group(attempt: int, evaluation: int = 1) -> GroupLease:
    return GroupLease(
        attempt=attempt, group=attempt, evaluation=evaluation, portions=(0, 2), shards=(1,)
    )


def test_there_is_room_for_one_group_that_is_computed_and_the_next() -> None:
    held = held_groups()
    assert held.has_room
    first = take(held, a_group(1))
    take(held, a_group(2))

    assert not held.has_room
    assert first is not None
    held.computed(first)

    assert held.has_room
    assert held.attempts == (1, 2)


def test_an_attempt_that_is_said_again_is_taken_once() -> None:
    held = held_groups()
    number = take(held, a_group(1))

    assert take(held, a_group(1)) is None
    assert number is not None
    held.done(number)
    assert held.attempts == ()
    assert held.get(number) is None


def test_an_attempt_that_was_dropped_is_taken_under_another_number() -> None:
    held = held_groups()
    first, newer = take(held, a_group(1)), take(held, a_group(2, evaluation=2))
    held.drop(evaluation=1)

    second = take(held, a_group(1))

    assert first is not None
    assert newer is not None
    assert held.get(first) is None
    assert held.get(newer) is not None
    assert second not in {None, first, newer}


def test_a_wait_for_room_ends_when_a_group_is_computed() -> None:
    held = held_groups()
    first = take(held, a_group(1))
    take(held, a_group(2))
    assert first is not None
    held.wait_for_room(0.001)
    assert not held.has_room

    waiting = threading.Thread(target=held.wait_for_room, args=(3600.0,), daemon=True)
    waiting.start()
    held.computed(first)
    waiting.join(10)

    assert not waiting.is_alive()


def test_after_an_evaluation_there_is_room_at_once_unless_more_of_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the coordinator does not know that it is over, and would give it again and again."""
    monkeypatch.setattr(groups, "_PAUSE_SECONDS", 1.0)
    held = held_groups()
    take(held, a_group(1))
    take(held, a_group(2))
    held.drop(evaluation=1)
    held.drop(evaluation=1)
    assert held.has_room

    take(held, a_group(3))
    held.drop(evaluation=1)
    assert not held.has_room
    held.wait_for_room(3600.0)
    assert held.has_room


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
    coordinator: Coordinator,
    held: HeldGroups | None = None,
    cancellation: Cancellation | None = None,
) -> WorkSource:
    return WorkSource(coordinator.request, held or held_groups(), cancellation or Cancellation())


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
    held = held_groups()
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
    cancellation = Cancellation()
    source = a_source(Coordinator(work(1), work(2)), cancellation=cancellation)
    for _ in range(4):
        source.next_within(20)

    cancellation.cancel()
    with pytest.raises(Cancelled):
        source.next_within(20)


@pytest.mark.parametrize(
    "end", [Work(), Refused(reason=RefusalReason.ENDED, message="the job is over")]
)
def test_the_end_of_the_work_is_the_end(end: messages.Reply) -> None:
    assert a_source(Coordinator(end)).next_within(20) is None
