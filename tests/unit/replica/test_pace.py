"""A step waits for fresh parameters while that is short; else it asks for them late."""

import pytest

from disttrain.replica import pace
from disttrain.replica.pace import MeasuredPace, NeverWaits


class Steps:
    """Steps whose seconds are given, on a clock that nothing else moves."""

    def __init__(self, replicas: int, fetch_every: int = 1) -> None:
        self.now = 0.0
        self.pace = MeasuredPace(replicas, fetch_every, lambda: self.now)

    def step(self, *, computing: float, waiting: float, fetching: float = 0.0) -> float | None:
        """One step; when its fetch was due. It only takes the time to wait if it has to."""
        after = self.pace.fetch_after_seconds()
        self.now += computing
        self.pace.computed()
        self.now += waiting if after is None else 0.0
        self.pace.ended(fetching)
        return after

    def try_waiting(self, *, computing: float, waiting: float, fetching: float = 0.0) -> None:
        for _ in range(pace.TRIED_STEPS):
            after = self.step(computing=computing, waiting=waiting, fetching=fetching)
            assert after is None


@pytest.mark.parametrize(("replicas", "share"), [(1, 0.39), (2, 0.19), (4, 0.09)])
def test_a_step_waits_as_long_as_that_costs_little(replicas: int, share: float) -> None:
    steps = Steps(replicas)

    afters = [steps.step(computing=1.0, waiting=share) for _ in range(100)]

    assert afters == [None] * 100


@pytest.mark.parametrize(("replicas", "share"), [(1, 0.41), (2, 0.21), (4, 0.11)])
def test_where_waiting_costs_more_computing_goes_on(replicas: int, share: float) -> None:
    steps = Steps(replicas)
    steps.try_waiting(computing=1.0, waiting=share)

    assert steps.step(computing=1.0, waiting=share) is not None


@pytest.mark.parametrize(("share", "waits"), [(0.79, True), (0.81, False)])
def test_waiting_for_a_fetch_is_shared_by_the_steps_that_it_is_for(
    share: float, *, waits: bool
) -> None:
    steps = Steps(2, fetch_every=4)
    steps.try_waiting(computing=1.0, waiting=share)

    assert (steps.step(computing=1.0, waiting=share) is None) is waits


def test_parameters_are_asked_for_so_that_they_arrive_before_the_quicker_steps_end() -> None:
    steps = Steps(2)
    steps.try_waiting(computing=1.0, waiting=0.6, fetching=0.2)
    for computing in (0.8, 1.2, 0.8, 1.2, 0.8, 1.2, 0.8, 1.2):
        after = steps.step(computing=computing, waiting=0.6, fetching=0.2)

    assert after is not None
    assert 0.8 <= after + 2 * 0.2 <= 1.0
    assert steps.pace.patience_seconds() == pytest.approx(0.2)


def test_a_fetch_that_takes_longer_than_a_step_is_asked_for_at_once() -> None:
    steps = Steps(2)
    steps.try_waiting(computing=1.0, waiting=9.0, fetching=3.0)

    assert steps.step(computing=1.0, waiting=9.0, fetching=3.0) == 0.0


@pytest.mark.parametrize("waiting", [0.3, 1.0, 30.0])
def test_waiting_is_tried_again_at_a_hundredth_of_the_time(waiting: float) -> None:
    steps = Steps(2)
    began = steps.now
    afters = [steps.step(computing=1.0, waiting=waiting) for _ in range(40_000)]
    waited = waiting * sum(after is None for after in afters[pace.TRIED_STEPS :])

    assert waited > 0
    assert waited <= 0.011 * (steps.now - began)


def test_waiting_that_has_become_short_is_noticed() -> None:
    steps = Steps(2)
    steps.try_waiting(computing=1.0, waiting=0.3)
    afters = [steps.step(computing=1.0, waiting=0.1) for _ in range(400)]

    assert afters[0] is not None
    assert afters[-100:] == [None] * 100


def test_a_replayed_step_never_waits() -> None:
    never = NeverWaits()

    assert never.fetch_after_seconds() == 0.0
    assert never.patience_seconds() == 0.0
