from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disttrain_operator.reconcile.queue import FIRST_DELAY, LONGEST_DELAY, Queue


def test_a_job_waits_at_most_once() -> None:
    queue: Queue[str] = Queue()
    for at in (5.0, 3.0, 4.0):
        queue.add("job", at)

    assert queue.next_at() == 3.0
    assert queue.take(2.9) is None
    assert queue.take(3.0) == "job"
    queue.done("job")
    assert queue.take(10.0) is None


def test_a_job_in_work_is_not_given_to_another_worker() -> None:
    queue: Queue[str] = Queue()
    queue.add("job", 0.0)
    assert queue.take(0.0) == "job"

    queue.add("job", 0.0)

    assert queue.take(1.0) is None
    assert queue.next_at() is None
    queue.done("job")
    assert queue.take(1.0) == "job"


def test_a_queue_is_as_late_as_the_job_that_waits_longest() -> None:
    queue: Queue[str] = Queue()
    assert queue.lateness(9.0) == 0
    queue.add("first", 1.0)
    queue.add("second", 3.0)

    assert queue.lateness(0.5) == 0
    assert queue.lateness(5.0) == 4
    queue.take(5.0)
    assert queue.lateness(5.0) == 2


def test_groups_take_turns_whoever_came_first() -> None:
    queue: Queue[str] = Queue(lambda key: key[0])
    for place in range(1000):
        queue.add(f"a{place}", 1.0)
    queue.add("b", 2.0)
    queue.add("c", 2.5)

    taken = [queue.take(3.0) for _ in range(6)]

    assert taken == ["a0", "b", "c", "a1", "a2", "a3"]
    assert queue.lateness(3.0) == 2.0


def test_what_waits_for_its_turn_may_be_added_again() -> None:
    queue: Queue[str] = Queue()
    for key in ("first", "second"):
        queue.add(key, 1.0)
    assert queue.take(2.0) == "first"
    queue.add("second", 0.5)

    assert queue.next_at() == 0.5
    assert queue.take(2.0) == "second"
    queue.done("second")
    assert queue.take(9.0) is None


def test_only_what_is_due_counts_as_waiting() -> None:
    queue: Queue[str] = Queue()
    for key, at in (("now", 1.0), ("soon", 5.0), ("in a week", 600_000.0)):
        queue.add(key, at)

    assert [queue.num_due(now) for now in (0.0, 1.0, 5.0)] == [0, 1, 2]
    queue.take(5.0)
    assert queue.num_due(5.0) == 1


def test_failures_wait_longer_and_longer_whatever_happens_meanwhile() -> None:
    queue: Queue[str] = Queue()
    now, delays = 0.0, []
    queue.add("job", now)
    for _ in range(12):
        assert queue.take(now) == "job"
        delays.append(queue.failed("job", now))
        queue.add("job", now)
        assert queue.take(now) is None
        now += delays[-1]

    assert delays[:4] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY, 8 * FIRST_DELAY]
    assert delays[-1] == LONGEST_DELAY


def test_a_changed_job_is_looked_at_at_once() -> None:
    queue: Queue[str] = Queue()
    queue.add("job", 0.0)
    queue.take(0.0)
    queue.failed("job", 0.0)

    queue.reset_backoff("job")
    queue.add("job", 0.1)

    assert queue.take(0.1) == "job"


def test_a_blocked_job_holds_up_nobody() -> None:
    queue: Queue[str] = Queue()
    queue.add("slow", 0.0)
    assert queue.take(0.0) == "slow"
    queue.add("slow", 0.0)
    queue.add("other", 1.0)

    assert queue.take(1.0) == "other"


def test_looks_at_a_job_whose_deadline_is_far_leave_nothing_behind() -> None:
    queue: Queue[str] = Queue()
    for now in range(5000):
        queue.add("job", float(now))
        assert queue.take(float(now)) == "job"
        queue.add("job", now + 1e6)
        queue.done("job")

    assert len(queue) == 1
    assert len(queue._heap) < 100
    assert queue.next_at() == 4999 + 1e6


class Model:
    """What must be true of the queue, beside the queue."""

    def __init__(self) -> None:
        self.queue: Queue[str] = Queue()
        self.active: set[str] = set()
        self.wanted: set[str] = set()
        self.now = 0.0

    def add(self, key: str, delay: float) -> None:
        self.queue.add(key, self.now + delay)
        self.wanted.add(key)

    def take(self, _: str, delay: float) -> None:
        self.now += delay
        taken = self.queue.take(self.now)
        if taken is not None:
            assert taken not in self.active
            assert taken in self.wanted
            self.active.add(taken)
            self.wanted.discard(taken)

    def done(self, key: str, _: float) -> None:
        if key in self.active:
            self.queue.done(key)
            self.active.discard(key)

    def failed(self, key: str, _: float) -> None:
        if key in self.active:
            self.queue.failed(key, self.now)
            self.active.discard(key)
            self.wanted.add(key)


_DEEDS = st.sampled_from([Model.add, Model.take, Model.done, Model.failed])
_STEPS = st.lists(st.tuples(_DEEDS, st.sampled_from("abc"), st.floats(0, 20)), max_size=60)


@pytest.mark.parametrize("spare", [-1, 64])
@given(_STEPS)
def test_no_job_is_lost_and_none_is_in_work_twice(
    spare: int, steps: list[tuple[Callable[[Model, str, float], None], str, float]]
) -> None:
    model = Model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("disttrain_operator.reconcile.queue._SPARE", spare)
        for deed, key, delay in steps:
            deed(model, key, delay)
    for key in model.active:
        model.queue.done(key)

    left = set()
    while (key_left := model.queue.take(model.now + 10_000)) is not None:
        left.add(key_left)
    assert left == model.wanted
