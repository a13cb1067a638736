"""How far the job is, and how long it will still take."""

import pytest

from builders.machines import asynchronous
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.phases import Phase, StopReason
from disttrain.coordinator.status import progress
from disttrain.coordinator.status.progress import Estimate
from disttrain.job.stop import Stop, TargetMetric

TARGET = TargetMetric(name="accuracy", at_least=0.9)


def _state(done: int = 0, samples: int = 100, began: float | None = 0.0) -> State:
    return State(
        phase=Phase.RUNNING, began=began, data=DataLedger(samples=samples, samples_done=done)
    )


def _estimate(state: State, stop: Stop, *, now: float = 0.0, speed: float = 10.0) -> Estimate:
    return progress.estimate(state, asynchronous(stop=stop), now, speed)


@pytest.mark.parametrize(
    ("stop", "fraction", "seconds"),
    [
        (Stop(samples=200), 0.25, 15.0),
        (Stop(epochs=2), 0.25, 15.0),
        (Stop(steps=50), 0.25, 15.0),
        (Stop(samples=50), 1.0, 0.0),
        (Stop(samples=40), 1.0, 0.0),
        (Stop(seconds=20.0), 0.4, 12.0),
        (Stop(seconds=8.0), 1.0, 0.0),
        (Stop(seconds=4.0), 1.0, 0.0),
    ],
)
def test_what_is_left_is_told_at_the_present_speed(
    stop: Stop, fraction: float, seconds: float
) -> None:
    found = _estimate(_state(done=50), stop, now=8.0)
    assert (found.fraction, found.remaining_seconds) == (fraction, seconds)


@pytest.mark.parametrize(
    ("stop", "seconds"),
    [
        (Stop(epochs=2, samples=1000, seconds=1000.0), 15.0),
        (Stop(epochs=9, samples=120, seconds=1000.0), 7.0),
        (Stop(epochs=9, samples=1000, seconds=11.0), 3.0),
        (Stop(epochs=9, samples=1000, steps=15), 1.0),
    ],
)
def test_the_rule_that_will_be_met_first_counts(stop: Stop, seconds: float) -> None:
    assert _estimate(_state(done=50), stop, now=8.0).remaining_seconds == seconds


def test_at_a_standstill_only_the_clock_tells_something() -> None:
    standing = _estimate(_state(done=50), Stop(epochs=2), speed=0.0)
    assert (standing.fraction, standing.remaining_seconds) == (0.25, None)
    timed = _estimate(_state(done=50), Stop(epochs=2, seconds=10.0), now=4.0, speed=0.0)
    assert (timed.fraction, timed.remaining_seconds) == (0.4, 6.0)


def test_nothing_is_told_before_the_size_of_the_data_is_known() -> None:
    found = _estimate(_state(samples=0, began=None), Stop(epochs=2))
    assert (found.fraction, found.remaining_seconds) == (0.0, None)


def test_a_target_alone_tells_nothing_and_takes_nothing_away() -> None:
    alone = _estimate(_state(done=50), Stop(target_metric=TARGET))
    assert (alone.fraction, alone.remaining_seconds) == (None, None)
    bounded = _estimate(_state(done=50), Stop(epochs=2, target_metric=TARGET))
    assert (bounded.fraction, bounded.remaining_seconds) == (0.25, 15.0)


def test_time_of_the_runs_that_are_resumed_counts() -> None:
    state = _state(done=50)
    state.elapsed = 6.0
    found = _estimate(state, Stop(seconds=20.0), now=8.0)
    assert (found.fraction, found.remaining_seconds) == (0.7, 6.0)


@pytest.mark.parametrize(
    ("phase", "fraction", "seconds"),
    [(Phase.COMPLETE, 1.0, 0.0), (Phase.FAILED, 0.25, None), (Phase.STOPPED, 0.25, None)],
)
def test_at_the_end_nothing_remains_of_a_complete_job_only(
    phase: Phase, fraction: float, seconds: float | None
) -> None:
    state = _state(done=50)
    state.phase = phase
    found = _estimate(state, Stop(epochs=2))
    assert (found.fraction, found.remaining_seconds) == (fraction, seconds)


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.STOPPED])
def test_at_an_early_end_the_time_until_then_is_how_far_the_job_came(phase: Phase) -> None:
    state = _state(done=50)
    state.phase, state.ended = phase, 6.0
    found = _estimate(state, Stop(seconds=8.0), now=100.0)
    assert (found.fraction, found.remaining_seconds) == (0.75, None)


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.CHECKPOINTING, Phase.EXPORTING])
def test_what_has_converged_computes_no_more(phase: Phase) -> None:
    state = _state(done=50)
    state.phase, state.reason = phase, StopReason.CONVERGED
    found = _estimate(state, Stop(epochs=2))
    assert (found.fraction, found.remaining_seconds) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("samples", "done", "epochs"), [(100, 0, 0.0), (100, 250, 2.5), (0, 0, 0.0)]
)
def test_epochs_are_told_with_their_fraction(samples: int, done: int, epochs: float) -> None:
    assert progress.epochs_processed(_state(done=done, samples=samples)) == epochs
