"""What is said of machines, and how long messages take between them."""

import pytest

from disttrain.simulation import machines
from disttrain.simulation.errors import WrongMachines
from disttrain.simulation.machines import Machines, StepTimes
from disttrain.transport.in_memory import Link, carried


@pytest.mark.parametrize(
    ("said", "bytes_per_second"),
    [("1Gb", 1.25e8), ("100Mb", 1.25e7), ("125MB", 1.25e8), ("2.5Gb", 3.125e8), ("8kb", 1000.0)],
)
def test_a_bandwidth_is_in_bits_or_bytes(said: str, bytes_per_second: float) -> None:
    assert machines.bandwidth(said) == bytes_per_second


@pytest.mark.parametrize("said", ["", "1", "1 Gb", "-1Gb", "0Gb", "1gb", "1Gbit", "nanMb", "1e3Mb"])
def test_another_bandwidth_is_refused_with_the_remedy(said: str) -> None:
    with pytest.raises(WrongMachines, match=r"--bandwidth: .* write 1Gb or 100Mb"):
        machines.bandwidth(said)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("50us", 5e-5), ("0.05ms", 5e-5), ("2s", 2.0), ("0.00005", 5e-5), ("5e-05", 5e-5), ("0", 0.0)],
)
def test_a_latency_is_in_seconds_or_has_a_unit(said: str, seconds: float) -> None:
    assert machines.latency(said) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("said", ["", "us", "-1us", "50 us", "5min", "nan", "inf", "1001", "1e99"])
def test_another_latency_is_refused_with_the_remedy(said: str) -> None:
    with pytest.raises(WrongMachines, match=r"--latency: .* write 50us, 0\.05ms or 0\.00005"):
        machines.latency(said)


def test_stragglers_are_named_by_index() -> None:
    assert machines.stragglers(["3=4", "0=1.5"], 4) == {3: 4.0, 0: 1.5}


@pytest.mark.parametrize("said", ["", "3", "3=", "=4", "3=0", "a=4", "3=-1", "3=inf"])
def test_another_straggler_is_refused(said: str) -> None:
    with pytest.raises(WrongMachines, match=r"--straggler: .* write 3=4"):
        machines.stragglers([said], 8)


def test_a_straggler_that_no_run_has_is_refused() -> None:
    with pytest.raises(WrongMachines, match=r"there is no replica 4 of 4; .* name one of 0 to 3"):
        machines.stragglers(["4=2"], 4)


def test_replicas_are_sorted_and_named_once() -> None:
    assert machines.replica_counts("16, 1,4,1") == (1, 4, 16)


@pytest.mark.parametrize("said", ["", "0", "1,,2", "1-4", "4097", "-1", "two"])
def test_other_numbers_of_replicas_are_refused(said: str) -> None:
    with pytest.raises(WrongMachines, match=r"--replicas: .* write 1,4,16"):
        machines.replica_counts(said)


def test_steps_take_the_same_times_again_and_a_straggler_longer() -> None:
    assumed = Machines(step_seconds=0.2, jitter=0.1, slower={1: 4.0})

    def times(replica: int, seed: int = 7) -> list[float]:
        steps = StepTimes(assumed, replica, 32, seed)
        return [steps.seconds(32) for _ in range(2000)]

    assert times(0) == times(0) != times(0, seed=8)
    assert sum(times(0)) / 2000 == pytest.approx(0.2, rel=0.02)
    assert sum(times(1)) / 2000 == pytest.approx(0.8, rel=0.02)
    assert min(times(0)) > 0


def test_half_a_batch_takes_half_a_step() -> None:
    steps = StepTimes(Machines(step_seconds=0.2), 0, 32, 0)
    assert [steps.seconds(32), steps.seconds(16)] == pytest.approx([0.2, 0.1])


def test_a_link_carries_one_message_after_the_other() -> None:
    sender, receiver = Link(100.0), Link(100.0)
    assert carried(0.0, 100, sender, receiver) == 1.0
    assert carried(0.0, 100, sender, receiver) == 2.0
    assert carried(5.0, 50, sender, receiver) == 5.5, "nothing is left of what was before"


def test_who_receives_from_two_gets_them_after_one_another() -> None:
    receiver = Link(100.0)
    assert carried(0.0, 100, Link(100.0), receiver) == 1.0
    assert carried(0.0, 100, Link(100.0), receiver) == 2.0


def test_who_sends_to_two_sends_them_after_one_another() -> None:
    sender = Link(100.0)
    assert carried(0.0, 100, sender, Link(100.0)) == 1.0
    assert carried(0.0, 100, sender, Link(100.0)) == 2.0


def test_the_slower_link_decides() -> None:
    assert carried(0.0, 100, Link(100.0), Link(10.0)) == 10.0
    assert carried(0.0, 100, Link(10.0), Link(100.0)) == 10.0
    assert carried(3.0, 100, None, None) == 3.0
